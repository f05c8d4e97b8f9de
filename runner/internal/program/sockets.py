"""What waits in sockets. Control groups of version 1 do not count it for INET and INET6, and none counts it for NETLINK."""

import os

WAITING_SECONDS = 0.1, 0.5  # between two looks while code runs, and while nothing does but what it has left
MAX_WAITING = 10 << 20  # in a TCP socket, both ways: what a kernel allows by default
UNBOUNDED = 1 << 60  # from here on a limit is none


def contents(name):
    try:
        with open(name, "rb") as f:
            return f.read()
    except OSError:
        return b""


def column(name, index):
    """Returns the fields of a column of a table of the kernel, whose first line has the names."""
    return [fields[index] for fields in map(bytes.split, contents(name).splitlines()[1:]) if len(fields) > index]


class Sockets:
    """Ends all user code when more waits in its sockets than it may have memory. It needs a network namespace of its own."""

    LIMITS = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"

    def __init__(self, sup):
        self.sup, self.timer = sup, None
        self.limit = min([int(text) for text in map(contents, self.LIMITS) if text.strip().isdigit()], default=UNBOUNDED)
        self.look()

    def look(self):
        """Looks now, and then again and again."""
        if os.getpid() != 1 or self.limit >= UNBOUNDED:
            return  # the sockets are also those of others, or there is no limit
        if self.waiting() > self.limit:
            self.sup.end_code("memory")
        self.sup.cancel(self.timer)
        self.timer = self.sup.after(WAITING_SECONDS[not self.sup.active], self.look)

    def waiting(self):
        """Returns how many bytes wait in sockets."""
        total = sum(map(int, column("/proc/net/netlink", 4)))
        for suffix in "", "6":
            used = {fields[0]: int(fields[2]) for fields in map(bytes.split, contents("/proc/net/sockstat" + suffix).splitlines()) if fields[1:2] == [b"inuse"]}
            tables = []
            if used.get(b"UDP%s:" % suffix.encode(), 0):
                tables.append("udp")
            # To read this table takes a kernel with much memory milliseconds, so few sockets are not looked at.
            if used.get(b"TCP%s:" % suffix.encode(), 0) * MAX_WAITING > self.limit:
                tables.append("tcp")
            for table in tables:
                total += sum(int(n, 16) for queues in column("/proc/net/" + table + suffix, 4) for n in queues.split(b":"))
        return total
