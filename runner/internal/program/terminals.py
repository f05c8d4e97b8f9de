"""The terminals that user code makes. The kernel counts them for the whole machine: a sandbox that had all would take them from others."""

import os
import select

MAX_TERMINALS = 64  # of code, besides those of requests
DEVICES, CREATED = "/dev/pts", 0x100  # where each has a name, and the event of a new one
COUNT_SECONDS = 0.05  # between two counts where nobody tells of new ones


class Terminals:
    """Ends all user code when it has more terminals than it may have."""

    def __init__(self, sup):
        self.sup, self.config = sup, sup.config
        self.events = as_user(self.config, self.inotify, sup.system.libc)
        if self.events >= 0:
            sup.watch(self.events, select.EPOLLIN, self.told)
        else:
            self.look()

    @staticmethod
    def inotify(libc):
        """Returns a descriptor that tells of new names. It counts as one of the user's, who has as many as root has for all sandboxes."""
        if libc is None:
            return -1
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(DEVICES), CREATED) < 0:
            close(fd)
            return -1
        return fd

    def told(self):
        try:
            os.read(self.events, CHUNK)
        except OSError:
            pass
        self.count()

    def look(self):
        if self.sup.runs:
            self.count()
        self.sup.after(COUNT_SECONDS, self.look)

    def count(self):
        found = 0
        try:
            names = os.listdir(DEVICES)
        except OSError:
            return  # nobody can make any here
        for name in names:
            try:
                found += name.isdigit() and os.stat(os.path.join(DEVICES, name)).st_uid == self.config["uid"]
            except OSError:
                pass  # it is gone
        requests = sum(p.terminal >= 0 for p in self.sup.processes.values() if isinstance(p, Process))
        if found > MAX_TERMINALS + requests:
            self.sup.end_code("processes")
