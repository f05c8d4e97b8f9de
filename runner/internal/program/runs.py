"""Runs, and what code reads from."""

import os
import select
from _collections import deque

GRACES = 3  # for code that has not had a processor to heed its interrupt


def size(m):
    """Returns the size of a terminal that a request has."""
    rows, columns = get(m, "rows", int, 0), get(m, "columns", int, 0)
    if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
        raise Refused("invalid", "terminal: a size of %d by %d" % (rows, columns))
    return rows, columns


class Run(Task):
    """One execution, in an interpreter or as a command."""

    def __init__(self, sup, holder, stream, m):
        self.sup = sup
        self.wall, self.limit = get(m, "wall", int, -1), get(m, "output", int, 0)
        self.own = "argv" in m and get(m, "own", bool, False)  # a program of the holder itself, not of user code
        most = sup.config
        if not self.own and (most["max_wall"] >= 0 and not 0 <= self.wall <= most["max_wall"] or not 0 < self.limit <= most["max_output"]):
            raise Refused("invalid", "limits: more than the session was created with")
        self.linger = get(m, "linger", int, -1)
        self.typescript = get(m, "typescript", bytes, b"")  # what makes JavaScript of the code, gzip in base64
        self.cwd, self.env = text(get(m, "dir", bytes, b"")), environment(m, "env")
        if self.cwd:
            self.cwd = os.path.join(most["workdir"], self.cwd)
        self.size = size(m) if "rows" in m and "argv" in m and not self.own else None  # of its terminal
        self.has_input, self.artifacts = get(m, "stdin", bool, False), get(m, "artifacts", bool, False)
        self.started = self.ended = self.muted = self.alone = False
        self.reason, self.written, self.credit = "", 0, WINDOW
        self.process = self.timer = self.scan = None
        self.input, self.early, self.input_ended = None, [], not self.has_input
        self.oom = sup.memory.kills()
        super().__init__(holder, stream)
        sup.runs.add(self)
        sup.active.add(self)

    # What the holder wants.

    def data(self, payload, end):
        if self.input_ended:
            self.consumed(len(payload))
            return
        self.input_ended = end
        if self.input is None:
            self.early.append(payload)
        elif payload:
            self.input.put(payload)
        if end and self.input is not None:
            self.input.end()

    def granted(self, n):
        self.credit += n
        if self.process is not None:
            self.process.pump()

    def resize(self, size):
        if self.size is not None and not self.ended:
            self.size = size
            if self.process is not None and self.process.outs:
                self.process.resize(size)

    def orphaned(self):
        self.alone = True
        if self.size is not None:
            self.stop("canceled")  # nobody is at the terminal any more
        if not self.input_ended:
            self.data(b"", True)
        self.granted(0)

    def stop(self, reason):
        """Interrupts the code, and kills it if it does not heed that."""
        if self.ended or self.reason:
            return
        self.reason = reason
        self.muted = reason == "output"
        if self not in self.sup.active:
            return  # the code has ended, and only what it wrote is on its way
        self.sup.cancel(self.timer)
        if self.process is None:
            self.fail("canceled", "stopped before it was started")
            return
        if self.sup.suspended is not None:
            self.process.kill()  # what is suspended heeds nothing
            return
        if self.started:
            self.process.interrupt()
        self.heed(1, worked(self.process.pid))

    def heed(self, time, had):
        """Waits for the code to heed its interrupt. If it has only waited for a processor, it gets more than one such time."""
        grace = self.sup.config["grace"] / 1e9

        def overdue():
            pid = self.process.pid
            if time < GRACES and b"R" in states(pid) and worked(pid) - had < grace / 4:
                self.heed(time + 1, had)
            else:
                self.process.kill()

        self.timer = self.sup.after(grace, overdue)

    # What the process does.

    def start(self, cell, fresh):
        self.started = True
        self.sup.sockets.look()
        if self.reason:
            self.process.interrupt()
        elif self.wall >= 0:
            self.timer = self.sup.after(self.wall / 1e9, lambda: self.stop("wall-time"))
        if not self.alone:
            alone = not self.holder.queue
            self.holder.send_map(STARTED, self.stream, {"cell": cell, "fresh": fresh})
            if alone:
                self.holder.hold()

    def connect(self, feed):
        """Gives the run its standard input, and that what has come for it."""
        self.input = feed
        for payload in self.early:
            feed.put(payload)
        if self.input_ended:
            feed.end()

    def room(self):
        """Returns how much output can be taken now."""
        if self.alone or self.muted:
            return CHUNK
        return 0 if self.holder.full() else max(self.credit, 0)

    def put(self, kind, data, flags=0, channel=0):
        """Passes output on, as much as the limit allows."""
        self.written += len(data)
        over = self.written - self.limit
        if not self.muted and not self.alone:
            if over > 0:
                data = data[: max(len(data) - over, 0)]
            # The rest of a value that does not fit is worth nothing.
            if data and not (over > 0 and kind == OUTPUT):
                self.credit -= len(data)
                self.sup.used()
                self.holder.send(kind, self.stream, data, flags, channel)
        if over > 0 and not self.muted:
            self.muted = True
            self.stop("output")

    def rest(self):
        """The code has ended: nothing is to be stopped any more."""
        self.sup.cancel(self.timer)
        self.sup.active.discard(self)
        self.sup.used()

    def finish(self, fields):
        """The code has ended, and what it wrote is passed on."""
        if self.scan is None or self.alone:
            self.end(fields)
        else:
            self.sup.helper.changes(self, fields)

    def end(self, fields):
        if not self.ended:
            self.over()
            if self.reason:
                fields["reason"] = self.reason
            if self.input is not None and self.input.taken is not None:
                fields["taken"] = self.input.taken
            if not self.alone:
                self.reply(DONE, fields)

    def fail(self, kind, message):
        if not self.ended:
            self.over()
            if not self.alone:
                super().fail(kind, message)

    def over(self):
        self.ended = self.input_ended = True
        if self.input is not None:
            self.input.over()
        self.rest()
        self.sup.runs.discard(self)

    def out_of_memory(self):
        return self.sup.memory.kills() > self.oom


class Input:
    """The pipe from which code reads. What it does not take, waits here, and the holder waits for credit."""

    def __init__(self, sup, fd, run=None):
        self.sup, self.fd, self.run = sup, fd, run
        self.queue, self.ended = deque(), False  # what it is worth, and bytes
        self.torn = False  # the first was written in part
        self.written = 0
        self.taken = None  # bytes that code has read, when nothing is written any more; None: not known
        os.set_blocking(fd, False)

    def put(self, data):
        if self.fd < 0:
            self.run.consumed(len(data))
        else:
            self.queue.append((len(data), data))
            self.write()

    def end(self):
        self.ended = True
        self.write()

    def write(self):
        if self.fd < 0:
            return
        while self.queue:
            worth, data = self.queue[0]
            try:
                n = os.write(self.fd, data)
            except BlockingIOError:
                self.sup.watch(self.fd, select.EPOLLOUT, self.write)
                return
            except OSError:  # the code has closed it
                self.over()
                return
            self.torn = n < len(data)
            self.written += n
            if self.torn:
                self.queue[0] = worth, data[n:]
            else:
                self.queue.popleft()
                self.paid(worth)
        self.sup.unwatch(self.fd)
        if self.ended:
            self.over()
            self.taken = self.written  # what waits in the pipe may still be read

    def paid(self, worth):
        if self.run is not None and not self.run.alone and not self.run.ended:
            self.run.consumed(worth)

    def over(self):
        """Nobody reads it any more."""
        if self.fd >= 0:
            self.taken = max(self.written - pending(self.fd), 0)
            self.sup.unwatch(self.fd)
            close(self.fd)
            self.fd = -1
            queue, self.queue = self.queue, deque()
            self.paid(sum(worth for worth, _ in queue))


def fork(sup, job):
    """Calls job in a new process, without the stack and the descriptors of the supervisor's objects."""
    gc.freeze()
    try:
        pid = os.fork()
    except OSError as e:
        raise Refused("exhausted", "no further process: " + e.strerror) from None
    if pid == 0:
        # These would close what is another's descriptor by the time that they go.
        sup.epoll.close()
        if sup.listener is not None:
            sup.listener.close()
        raise Child(job)
    gc.unfreeze()
    return pid
