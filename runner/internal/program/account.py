"""The name of the user of user code. It travels over the connection, and the supervisor executes it while it has all its rights.

Where the files with names cannot be written, a process answers for them, in the protocol in which C libraries ask a name service cache
daemon before they look into these files.
"""

import os
import select
import struct

NAMES = "user", "sandbox"  # that it may have, the first that nobody has
VERSION_OF_CACHE, SHARED = 2, 4  # of its protocol; the first kind of request that is not about a user or a group
ASK_SECONDS = 0.2  # for a program to say what it asks for


def account(sup, c, mine, socket):
    """Returns the name of the user. One that the image does not name is added to its files if the machine is a sandbox as a whole."""
    rows = lines("/etc/passwd")
    for row in rows:
        if row[2:3] == [str(c["uid"])]:
            return row[0]
    groups = lines("/etc/group")
    taken = {row[0] for row in rows + groups}
    name = next((n for n in NAMES if n not in taken), "user%d" % c["uid"])
    user = "%s:x:%d:%d::%s:/bin/sh" % (name, c["uid"], c["gid"], c["home"])
    group = "%s:x:%d:" % (name, c["gid"])
    if mine:
        add("/etc/passwd", user)
        if all(row[2:3] != [str(c["gid"])] for row in groups):
            add("/etc/group", group)
    elif socket:
        Names(sup, socket, [*rows, user.split(":")], [*groups, group.split(":")])
    return name


class Names:
    """Answers questions for names. The process that does is started by the first of them, and again when it has died."""

    mark = 0

    def __init__(self, sup, name, users, groups):
        self.sup, self.users, self.groups = sup, users, groups
        s = self.socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            s.bind(name)
            os.chmod(name, 0o666)
            s.listen(64)
        except OSError as e:
            raise Refused("invalid", "%s: %s: mount a directory of root there" % (name, e.strerror)) from None
        self.watch()

    def watch(self):
        self.sup.watch(self.socket.fileno(), select.EPOLLIN, self.start)

    def start(self):
        sup, config, fd, serve = self.sup, self.sup.config, self.socket.fileno(), self.serve

        def job():
            become_helper(config, sup.system, fd)
            serve()

        try:
            pid = fork(sup, job)
        except Refused:
            return  # until there is room for it
        sup.unwatch(fd)
        sup.processes[pid] = self

    def exited(self, code, usage):
        self.watch()

    def family(self, table):
        return set()  # it is none of the user's, and ends with the supervisor

    def serve(self):
        listener = _socket.socket(fileno=3)
        while True:
            s = _socket.socket(fileno=listener._accept()[0])
            s.settimeout(ASK_SECONDS)
            try:
                s.send(self.answer(s.recv(1024)))
            except (OSError, struct.error):
                pass  # who asks then looks into the files
            s.close()

    def answer(self, data):
        version, kind, size = struct.unpack_from("=3i", data)
        if version != VERSION_OF_CACHE or not 0 <= kind < SHARED:
            return b""
        key = os.fsdecode(data[12 : 12 + size].rstrip(b"\0"))
        rows, fields, head = (self.users, 7, "=4i2I3i") if kind < 2 else (self.groups, 4, "=4iIi")
        by = 2 if kind % 2 else 0  # name, number, for users and then for groups
        row = next((r for r in rows if len(r) == fields and r[by] == key and r[2].isdigit() and r[3 if kind < 2 else 2].isdigit()), None)
        if row is None:
            return struct.pack(head, version, *[0] * (8 if kind < 2 else 5))
        name, word, *texts = [os.fsencode(s) + b"\0" for s in row[:2] + row[4:]]
        if kind < 2:
            return struct.pack(head, version, 1, len(name), len(word), int(row[2]), int(row[3]), *map(len, texts)) + name + word + b"".join(texts)
        members = [os.fsencode(s) + b"\0" for s in row[3].split(",") if s]
        sizes = struct.pack("=%dI" % len(members), *map(len, members))
        return struct.pack(head, version, 1, len(name), len(word), int(row[2]), len(members)) + sizes + name + word + b"".join(members)


def lines(name):
    try:
        with open(name, encoding="utf-8", errors="surrogateescape") as f:
            return [line.rstrip("\n").split(":") for line in f]
    except OSError:
        return []


def add(name, line):
    try:
        fd = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return  # there is none, or it cannot be written to
    with open(fd, "r+b") as f:
        end = f.seek(0, 2)
        f.seek(max(end - 1, 0))
        torn = f.read(1) not in (b"", b"\n")
        f.write(b"\n" * torn + os.fsencode(line) + b"\n")
