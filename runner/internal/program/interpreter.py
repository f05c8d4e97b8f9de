"""A process that runs cells of Python with the user's rights. The code in it may do whatever it likes with this as well."""

import atexit
import gc
import io
import os
import resource
import site
import sys

import _contextvars
import _thread

# The pipes of output. A program that inherits descriptor 1 may make it non-blocking for everybody who shares that open file, and the
# code may close it; so what Python writes goes to open files of its own.
RAW = {"stdout": 4, "stderr": 5}
CELL_NAME = "<execbroker cell.py>"
OUT, ERR, NULL = 60, 61, 62  # what 0, 1 and 2 are at the beginning of each run
ASKS = 1  # channel of a frame that the supervisor answers
MAX_KEPT = 1 << 16  # bytes


class Raw(io.FileIO):
    def __init__(self, stream):
        super().__init__(RAW[stream], "wb", closefd=False)
        self.number = Host.numbers[stream]
        self.name = "<%s>" % stream

    def fileno(self):
        return self.number


class Host:
    """What cell.py asks of its surroundings."""

    numbers = {"stdin": 0, "stdout": 1, "stderr": 2}

    def __init__(self, tell, origin, left):
        self.tell, self.origin, self.pid, self.linger = tell, origin, os.getpid(), left.linger

    def open(self, stream):
        return Raw(stream)

    def output(self, main, bundle):
        if os.getpid() != self.pid:  # of a process that the code has forked: it has no way to the supervisor
            os.write(1, bundle.get("text/plain", b"") + b"\n")
        else:
            # What follows the last value of a cell travels on the same way; what is written after another takes one of its own.
            self.tell(OUTPUT, {"main": main, "data": bundle}, not main)

    def stray(self):
        return self.origin.stray()

    def read(self, n):
        return os.read(0, n)

    def fileno(self, stream):
        return self.numbers[stream]


class Origin:
    """Tells what was started in the run in progress from what an earlier one has left running.

    Tasks and callbacks of an event loop carry the run in their context. A thread belongs to the run that started it, unless it does
    what an executor was given later.
    """

    def __init__(self):
        self.now, self.run, self.threads = 0, _contextvars.ContextVar("run", default=0), {}
        self.noted = None  # is called with the future of each work for an executor, and the run that it is of
        for name in ("start_new_thread", "start_new", "start_joinable_thread"):
            if hasattr(_thread, name):
                setattr(_thread, name, self.follow(getattr(_thread, name)))

    def begin(self, number):
        self.now = number
        self.run.set(number)

    def left(self):
        """Reports whether there are threads."""
        return bool(self.threads)

    def of(self):
        return self.run.get() or self.threads.get(_thread.get_ident(), 0)

    def stray(self):
        run = self.of()
        return run != self.now and run != 0  # what cannot be told belongs to the run in progress

    def follow(self, start):
        def start_new_thread(function, *args, **kwargs):
            run = self.of()

            def job(*a, **k):
                me = _thread.get_ident()
                self.threads[me] = run  # for later versions, whose threads have yet another context
                self.run.set(run)
                try:
                    return function(*a, **k)
                finally:
                    self.threads.pop(me, None)

            return start(job, *args, **kwargs)

        return start_new_thread

    def carry(self, module):
        """Lets the threads of executors belong to the run whose work they do."""
        run, threads = self.run, self.threads

        def wrap(fn):
            number = run.get()

            def job(*a, **k):
                token, me = run.set(number), _thread.get_ident()
                before, threads[me] = threads.get(me, 0), number
                try:
                    return fn(*a, **k)
                finally:
                    threads[me] = before
                    run.reset(token)

            return job

        self.submit(module.ThreadPoolExecutor, wrap)

    def submit(self, executor, wrap=lambda fn: fn):
        """Notes what is submitted to executors of a class."""
        submit, run, left = executor.submit, self.run, self.noted

        def submit_here(self, fn, /, *args, **kwargs):
            future = submit(self, wrap(fn), *args, **kwargs)
            left(future, run.get())
            return future

        executor.submit = submit_here


class Loop:
    def __init__(self):
        cwd = os.getcwd()
        self.origin = Origin()
        site.main()
        user = site.getusersitepackages()
        if user not in sys.path:
            sys.path.append(user)  # where pip installs what it may not install elsewhere
        cell = type(sys)("cell")
        exec(part_of(PARTS, "cell.py"), cell.__dict__)
        cell._NOTEBOOK = lambda: part_of(PARTS, "notebook.py")
        self.lock, self.main = _thread.allocate_lock(), _thread.get_ident()
        self.leaves = Left(self.origin)
        self.origin.noted = self.leaves.submitted
        self.cell = cell.Interpreter(Host(self.tell, self.origin, self.leaves), CONFIG["workdir"])
        self.cell.after_import("concurrent.futures.thread", self.origin.carry)
        self.cell.after_import("concurrent.futures.process", lambda module: self.origin.submit(module.ProcessPoolExecutor))
        os.chdir(cwd)
        self.users, self.events = user, None
        self.pid, self.held, self.task = os.getpid(), False, None
        self.kept = b""  # the value of a cell, which waits for the end of its run
        self.leaves.flush = self.flush
        quietly(self.hold)
        # Until the first run, what the start of Python prints belongs to nobody.
        os.dup2(1, OUT, False)
        os.dup2(2, ERR, False)
        os.dup2(os.open("/dev/null", os.O_RDWR), NULL, False)
        self.connect(-1, 1)

    def connect(self, fd, number):
        """Puts a descriptor that came in, or /dev/null, in the place of another. It takes no new one: the code may have them all."""
        if fd < 0:
            os.dup2(NULL, number)
        elif fd == number:
            os.set_inheritable(fd, True)
        else:
            os.dup2(fd, number)
            os.close(fd)

    def serve(self):
        control, inbuf, part, stdin = local(3), bytearray(), b"", -1
        while True:
            data, fds = receive_fds(control, 1 << 16, 1)
            if not data:
                self.leave()
            if fds:
                stdin = fds[0]
            inbuf += data
            for kind, flags, _, _, payload in parse(inbuf):
                if kind != OPEN:
                    continue  # what came with the descriptor
                part += payload
                if not flags & MORE:
                    self.run(unpack(part), stdin)
                    part, stdin = b"", -1

    def leave(self):
        """Ends the process, and before that calls what the code wanted to be called then."""
        try:
            atexit._run_exitfuncs()
        except BaseException:
            pass  # it is told like all that is written now: to nobody
        os._exit(0)

    def run(self, m, stdin):
        # The last run may have closed or replaced any of the three.
        self.connect(stdin, 0)
        os.dup2(OUT, 1)
        os.dup2(ERR, 2)
        self.add_paths(m["paths"])
        before = cpu()
        exit_code, exception, interrupted, r = 130, None, True, None
        env = {k: text(v) for k, v in m["env"].items()}
        self.origin.begin(m["cell"])
        self.leaves.begin(m["linger"])
        self.cell.sift(self.origin.left() or self.events is not None)
        self.tell(STARTED, {})
        try:
            # The default handler and no other lets asyncio.run take care of interrupts itself.
            _signal.signal(_signal.SIGINT, _signal.default_int_handler)
            if self.held:  # the run was to be stopped as soon as it was known to have started
                raise KeyboardInterrupt
            r = self.cell.run(text(m["code"]), m["cell"], text(m["dir"]) or None, env)
            if hasattr(r, "send"):
                r = self.drive(r)
            exit_code, exception, interrupted = r.exit_code, r.exception, r.interrupted
        except KeyboardInterrupt:  # between the code and its outcome
            if hasattr(r, "close"):
                r.close()
        quietly(self.hold)
        if os.getpid() != self.pid:  # the code has forked, and this is the child
            if exception:
                os.write(2, exception["traceback"].encode("utf-8", "replace"))
            os._exit(exit_code)
        if "asyncio" in sys.modules:
            sys.modules["asyncio"]._set_running_loop(None)  # what an interrupt within a loop of the code may have left
        self.connect(-1, 0)
        self.origin.now = -1  # from now on all that runs is left running
        self.cell.sift(self.origin.left() or self.events is not None)
        left = self.leaves.names()
        self.tell(DONE, {"exit": exit_code, "exception": exception, "interrupted": interrupted, "left": left, "kids": kids(), "exits": exits(), "cpu": cpu() - before})

    def tell(self, kind, fields, wait=False):
        """Sends a frame to the supervisor, and with wait waits until it is passed on. An interrupt waits as long."""
        self.undisturbed(self.put, kind, pack(fields), wait)

    def undisturbed(self, call, *args):
        if _thread.get_ident() != self.main:  # interrupts are not for it
            return call(*args)
        self.held = False
        handler = _signal.signal(_signal.SIGINT, self.hold)
        call(*args)
        _signal.signal(_signal.SIGINT, handler)
        if self.held and handler is not None:
            os.kill(self.pid, _signal.SIGINT)

    def put(self, kind, payload, wait):
        with self.lock:
            if kind == OUTPUT and self.origin.stray():
                return
            for flags, piece in pieces(kind, 1, payload):
                self.kept += frame(kind, 1, piece, flags, ASKS if wait else 0)
                if kind != OUTPUT or wait or len(self.kept) > MAX_KEPT:
                    self.write()
            left = HEAD.size if wait else 0
            while left:
                answer = os.read(3, left)
                if not answer:
                    os._exit(0)
                left -= len(answer)

    def flush(self):
        """Sends what is kept, because the end of the run does not follow at once."""
        if self.kept:
            self.undisturbed(self.send)

    def send(self):
        with self.lock:
            self.write()

    def write(self):
        data, self.kept = memoryview(self.kept), b""
        while data:
            data = data[os.write(3, data) :]

    def hold(self, number, stack):
        """Handles an interrupt that must not disturb what is going on."""
        self.held = True

    def drive(self, job):
        """Runs a cell that awaits. The event loop stays: what a cell has started in it goes on in the next one."""
        self.held = False
        if quietly(self.hold):
            self.held = True
        import asyncio

        if self.events is None or self.events.is_closed():
            self.events = self.leaves.events = asyncio.new_event_loop()
        asyncio.set_event_loop(self.events)
        self.task = self.events.create_task(job)
        _signal.signal(_signal.SIGINT, self.cancel)
        if self.held:
            self.task.cancel()
        while True:
            try:
                return self.events.run_until_complete(self.task)
            except (KeyboardInterrupt, SystemExit):
                self.task.cancel()  # another task has ended so
            except asyncio.CancelledError:  # before its first step
                raise KeyboardInterrupt from None

    def cancel(self, number, stack):
        """Handles an interrupt while the event loop runs: it must hit the code and not the loop."""
        while stack is not None:
            name = stack.f_code.co_filename
            if name.startswith("<cell ") or name == CELL_NAME:
                raise KeyboardInterrupt
            stack = stack.f_back
        self.events.call_soon_threadsafe(self.task.cancel)

    def add_paths(self, paths):
        for p in [text(p) for p in paths] + [self.users]:
            if p not in sys.path:
                known = len(sys.path)
                site.addsitedir(p)
                if p != self.users:  # it has what was asked for, where the image may have another version
                    more, sys.path[known:] = sys.path[known:], []
                    images = [i for i, q in enumerate(sys.path) if q in site.getsitepackages()]
                    at = min(images, default=known)
                    sys.path[at:at] = more
            if sys.path_importer_cache.get(p, 0) is None:
                del sys.path_importer_cache[p]  # it may exist by now


def quietly(handler):
    """Sets the handler of interrupts, and reports whether one came before it was set."""
    came = False
    while True:
        try:
            _signal.signal(_signal.SIGINT, handler)
            return came
        except KeyboardInterrupt:
            came = True


def kids():
    """Reports whether there have been processes that this one has started."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except OSError:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


def exits():
    """Reports whether something is to be called at the end of the process."""
    return atexit._ncallbacks() > 0


def cpu():
    total = 0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        u = resource.getrusage(who)
        total += u.ru_utime + u.ru_stime
    return int(total * 1e9)


gc.disable()  # nothing that is loaded is garbage
loop = Loop()
gc.enable()
loop.serve()
