"""The file helper: does what holders ask for with the user's rights. It serves many streams in turn, and waits for none of them."""

import os
import select
import stat
from _collections import deque

MAX_NAMES = 500000  # of a directory
MAX_ENTRIES_SIZE = WINDOW - (1 << 16)  # of changes; they travel without credit
MAX_PATH = 3500  # bytes of a name: with that of one entry more, the kernel still takes it
PART = ".execbroker-"  # begins the names of files that are not complete; scans leave them out

KINDS = {}
for kind, names in {
    "not-exist": "ENOENT ENOTDIR ESRCH ENXIO",
    "exist": "EEXIST ENOTEMPTY",
    "permission": "EACCES EPERM EROFS EBUSY ETXTBSY",
    "too-large": "ENOSPC EDQUOT EFBIG",
    "exhausted": "EMFILE ENFILE ENOMEM",
    "withheld": "EAGAIN",
    "internal": "EIO",
}.items():
    for name in names.split():
        KINDS[getattr(errno, name)] = kind


class Files:
    """The streams, each a generator that yields when it has to wait or others should have a turn."""

    def __init__(self):
        self.inbuf, self.out = bytearray(), deque()
        self.streams, self.parts, self.scans = {}, {}, {}
        self.cell = None

    def serve(self):
        os.set_blocking(3, False)
        poll = select.poll()
        while True:
            busy = [s for s in self.streams.values() if s.ready()]
            poll.register(3, select.POLLIN | (select.POLLOUT if self.out else 0))
            poll.poll(0 if busy and len(self.out) < 64 else None)
            if not self.read() or not self.write():
                os._exit(0)
            if len(self.out) < 64:
                for s in busy:
                    s.step()

    def read(self):
        try:
            data = os.read(3, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.inbuf += data
        for kind, flags, channel, stream, payload in parse(self.inbuf):
            s = self.streams.get(stream)
            if kind == OPEN:
                part = self.parts.pop(stream, b"") + payload
                if flags & MORE:
                    self.parts[stream] = part
                else:
                    self.streams[stream] = Stream(self, stream, unpack(part))
            elif s is None:
                pass  # over
            elif kind == DATA:
                s.data.append(payload)
                s.end = s.end or bool(flags & END)
            elif kind == CREDIT:
                s.credit += U32.unpack(payload)[0]
            elif kind == STOP:
                s.stop()
        return bool(data)

    def write(self):
        try:
            while self.out:
                n = os.write(3, self.out[0])
                if n < len(self.out[0]):
                    self.out[0] = memoryview(self.out[0])[n:]
                else:
                    self.out.popleft()
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class Stream:
    def __init__(self, files, number, m):
        self.files, self.number, self.request = files, number, m
        self.data, self.end, self.credit = deque(), False, WINDOW
        self.wants = ""  # "credit" or "data": what it waits for
        self.steps = self.work()

    def ready(self):
        return not (self.wants == "credit" and self.credit <= 0 or self.wants == "data" and not self.data and not self.end)

    def send(self, kind, payload=b"", channel=0):
        self.files.out.append(frame(kind, self.number, payload, 0, channel))

    def step(self):
        self.wants = ""
        try:
            self.wants = next(self.steps)
        except StopIteration as done:
            self.over(DONE, done.value or {})
        except Exception as e:
            self.over(FAIL, self.failure(e))

    def failure(self, e):
        if isinstance(e, Refused):
            return {"kind": e.args[0], "message": e.args[1]}
        if isinstance(e, OSError):
            kind = KINDS.get(e.errno, "wrong-kind")
            return {"kind": kind, "message": "code holds a lease on it" if kind == "withheld" else e.strerror or str(e)}
        return {"kind": "wrong-kind" if isinstance(e, ValueError) else "internal", "message": str(e)}

    def stop(self):
        self.steps.close()
        self.over(FAIL, {"kind": "canceled", "message": "stopped"})

    def over(self, kind, fields):
        self.files.streams.pop(self.number, None)
        self.send(kind, pack(fields))

    def work(self):
        op = text(get(self.request, "op", bytes, b""))
        return (yield from getattr(self, "do_" + op)())

    def name(self, key="name"):
        name = get(self.request, key, bytes, b"")
        if not name.startswith(b"/"):
            raise Refused("invalid", "%s: not absolute" % key)
        return name

    # The operations. What they return is the answer.

    def do_read(self):
        # Without O_NONBLOCK, a pipe that nobody writes to would hold up everyone.
        fd = os.open(self.name(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            s = os.fstat(fd)
            if not stat.S_ISREG(s.st_mode):
                raise Refused("wrong-kind", "not a regular file")
            self.send(STARTED, pack(entry(b"", s)))
            while True:
                while self.credit <= 0:
                    yield "credit"
                data = os.read(fd, min(self.credit, CHUNK))
                if not data:
                    return {}
                self.credit -= len(data)
                self.send(DATA, data, CONTENTS)
                yield ""
        finally:
            os.close(fd)

    def do_write(self):
        name, mode = self.name(), get(self.request, "mode", int, 0o644) & 0o777
        parent = os.path.dirname(name)
        try:
            os.makedirs(parent, exist_ok=True)
        except FileExistsError:
            raise Refused("not-exist", "the directory is a file") from None
        if stat.S_ISDIR(mode_of(name)):
            raise Refused("wrong-kind", "is a directory")
        part = os.path.join(parent, os.fsencode(PART) + os.urandom(8).hex().encode())
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self.send(STARTED, pack({}))
            while self.data or not self.end:
                if not self.data:
                    yield "data"
                    continue
                data = memoryview(self.data.popleft())
                n = len(data)
                while data:
                    data = data[os.write(fd, data) :]
                if n:
                    self.send(CREDIT, U32.pack(n))
                yield ""
            os.fchmod(fd, mode)
            os.rename(part, name)
            part = None
            return {}
        finally:
            os.close(fd)
            if part is not None:
                os.unlink(part)

    def do_stat(self):
        name = self.name()
        return entry(os.path.basename(name), os.lstat(name), name)
        yield

    def do_list(self):
        name = self.name()
        names = []
        with os.scandir(name) as found:
            for i, x in enumerate(found):
                names.append(x.name)
                if i >= MAX_NAMES:
                    raise Refused("too-large", "more than %d entries" % MAX_NAMES)
                if i % 1000 == 999:
                    yield ""
        names.sort()
        batch = []
        for i, x in enumerate(names):
            try:
                path = os.path.join(name, x)
                batch.append(pack(entry(x, os.lstat(path), path)))
            except FileNotFoundError:
                pass  # removed meanwhile
            if len(batch) == 500 or i == len(names) - 1:
                yield from self.entries(batch)
                batch = []
        return {}

    def entries(self, batch):
        data = b"".join(batch)
        while data:
            while self.credit <= 0:
                yield "credit"
            piece, data = data[: self.credit], data[self.credit :]
            self.credit -= len(piece)
            self.send(DATA, piece, ENTRIES)
        yield ""

    def do_mkdir(self):
        os.makedirs(self.name())
        return {}
        yield

    def do_rename(self):
        os.rename(self.name("from"), self.name("to"))
        return {}
        yield

    def do_remove(self):
        return (yield from self.remove(os.path.normpath(self.name())))

    def remove(self, name):
        if name.strip(b"/") == b"":
            raise Refused("wrong-kind", "the root directory")
        mode = mode_of(name)
        if not stat.S_ISDIR(mode):
            if mode:
                os.unlink(name)
            return {}
        # Directories are removed on the way back. One that lacks rights is the user's own, and gets them. Names begin at a descriptor:
        # the request may be as long as a name can be. What lies deeper than that is moved up, while there is a name for it.
        top = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield from self.empty(b"/proc/self/fd/%d/" % top)
        finally:
            os.close(top)
        os.rmdir(name)
        return {}

    def empty(self, top):
        todo, removed = [(top, False)], 0
        while todo:
            path, emptied = todo.pop()
            if emptied:
                if path != top:
                    own_parent(os.rmdir, path)
                continue
            todo.append((path, True))
            try:
                found = os.scandir(path)
            except PermissionError:
                os.chmod(path, 0o700)
                found = os.scandir(path)
            with found:
                for x in found:
                    if x.is_dir(follow_symlinks=False):
                        inner = x.path
                        if len(inner) > MAX_PATH:
                            inner = top + os.fsencode(PART) + os.urandom(8).hex().encode()
                            os.chmod(x.path, 0o700)  # to move a directory is to write in it
                            own_parent(os.rename, x.path, inner)
                        todo.append((inner, False))
                    else:
                        own_parent(os.unlink, x.path)
                    removed += 1
                    if removed % 500 == 0:
                        yield ""

    def do_scan(self):
        self.files.scans[self.number] = self.semantics().scan(CONFIG["workdir"], HOME)
        while len(self.files.scans) > 64:  # of runs whose end nobody has heard of
            del self.files.scans[next(iter(self.files.scans))]
        return {}
        yield

    def do_changes(self):
        state = self.files.scans.pop(self.request.get("scan"), None)
        if state is None:
            raise Refused("not-exist", "no such scan")
        left, batch = MAX_ENTRIES_SIZE, []
        for name, size, mtime in self.semantics().changes(CONFIG["workdir"], state, HOME):
            batch.append(pack({"name": name, "size": size, "mtime": mtime}))
            left -= len(batch[-1])
            if left < 0:
                break
            if len(batch) == 500:
                self.send(DATA, b"".join(batch), ENTRIES)
                batch = []
        if batch:
            self.send(DATA, b"".join(batch), ENTRIES)
        return {}
        yield

    def do_forget(self):
        """Removes what processes share and what outlives them: shared memory, semaphores and queues."""
        if CONFIG["same_user"]:
            return {}  # they may be those of others
        libc = System().libc
        for kind in ("shm", "msg", "sem"):
            for number in objects(kind, CONFIG["uid"]):
                if libc is None:
                    raise Refused("unsupported", "shared memory cannot be removed without ctypes")
                if kind == "sem":
                    libc.semctl(number, 0, 0)
                else:
                    getattr(libc, kind + "ctl")(number, 0, None)
            yield ""
        # What POSIX calls so are files. /dev/mqueue is there only where it was mounted.
        for place in (b"/dev/shm", b"/dev/mqueue"):
            try:
                with os.scandir(place) as found:
                    names = [x.path for x in found if x.stat(follow_symlinks=False).st_uid == CONFIG["uid"]]
            except OSError:
                names = []
            for name in names:
                yield from self.remove(name)
        return {}

    def do_kill(self):
        if not CONFIG["same_user"]:
            os.setresuid(CONFIG["uid"], CONFIG["uid"], 0)
            try:
                os.kill(-1, _signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os.setresuid(0, CONFIG["uid"], 0)
        return {}
        yield

    def semantics(self):
        if self.files.cell is None:
            self.files.cell = cell = type(sys)("cell")
            exec(part_of(PARTS, "cell.py"), cell.__dict__)
        return self.files.cell


def own_parent(call, name, *others):
    """Calls call with a name in a directory that may lack rights, and is the user's own."""
    try:
        call(name, *others)
    except PermissionError:
        os.chmod(os.path.dirname(name), 0o700)
        call(name, *others)


def objects(kind, uid):
    """Returns the numbers of the System V objects of a user."""
    try:
        with open("/proc/sysvipc/" + kind) as f:
            head, *rows = (line.split() for line in f)
    except (OSError, ValueError):
        return []  # a kernel without them
    owners = head.index("uid"), head.index("cuid")
    return [int(row[1]) for row in rows if any(int(row[i]) == uid for i in owners)]


def mode_of(name):
    try:
        return os.lstat(name).st_mode
    except FileNotFoundError:
        return 0


def entry(name, s, path=None):
    e = {"name": name, "size": s.st_size, "mode": s.st_mode, "mtime": s.st_mtime_ns}
    if path is not None and stat.S_ISLNK(s.st_mode):
        e["target"] = os.readlink(path)
    return e


Files().serve()
