"""What code leaves running in this process, and what of that its run waits for. It precedes interpreter.py in one program."""

import os
import sys
import time

PAUSES = 0.001, 0.02  # s between two looks at what is waited for, first and last
STOPS = 0.2  # s that it has to end when it is told to
MAX_LEFT = 21  # names
MAX_NAME = 200  # characters
_sleep, _clock = time.sleep, time.monotonic


class Left:
    """Knows threads, tasks and timers by the run that started them, and the rest by its not having been there before."""

    def __init__(self, origin):
        self.origin, self.pid = origin, os.getpid()
        self.events, self.most, self.futures, self.before, self.seen = None, -1, set(), set(), set()

    def begin(self, most):
        """Notes that a run begins, and for how long it waits: -1 is for ever."""
        self.most, self.futures, self.seen = most, set(), set()
        self.before = {*quiet(self.children), *quiet(self.tasks)}

    def submitted(self, future, run):
        """Notes work for an executor, whose threads and processes are not waited for themselves."""
        if run == self.origin.now and not future.done():
            self.futures.add(future)
            future.add_done_callback(self.futures.discard)

    async def linger(self):
        """Waits for what the run has started. Without a loop that runs it never yields."""
        asyncio = sys.modules.get("asyncio")
        loop = asyncio and asyncio._get_running_loop()
        pause, end = PAUSES[0], float("inf") if self.most < 0 else _clock() + self.most / 1e9
        try:
            if "matplotlib.pyplot" in sys.modules:  # its figures follow, and take long
                self.flush()
            while os.getpid() == self.pid and _clock() < end and quiet(self.pending):
                self.flush()
                await asyncio.sleep(pause) if loop else _sleep(pause)
                pause = min(2 * pause, PAUSES[1], max(end - _clock(), 0))
        except BaseException:  # an interrupt
            end = _clock() + STOPS
            quiet(self.stop)
            while quiet(self.pending) and _clock() < end:
                await asyncio.sleep(PAUSES[0]) if loop else _sleep(PAUSES[0])
            raise
        quiet(self.complain)

    def complain(self):
        """Shows the errors of tasks that nobody else will see."""
        for t in self.seen:
            if t.done() and not t.cancelled() and t._log_traceback:
                t._log_traceback = False
                self.events.call_exception_handler({"message": "Task exception was never retrieved", "exception": t.exception(), "task": t})

    def pending(self):
        """Lists what the run in progress has started and waits for."""
        run, found = self.origin.now, [f for f in list(self.futures) if not f.done()]
        for t in self.threads():
            if self.works(t):
                # The last callbacks of a future run when it is done.
                stack = sys._current_frames().get(t.ident)
                while stack is not None and stack.f_code.co_name != "_invoke_callbacks":
                    stack = stack.f_back
                found += [t] if stack else []
            elif self.origin.threads.get(t.ident) == run and not t.daemon:
                found.append(t)
        found += [p for p in self.children() if p not in self.before and not p.daemon]
        tasks = [t for t in self.tasks() if t not in self.before and not self.serves(t)]
        self.seen.update(tasks)
        return found + tasks + [h for h in self.timers() if h._context.get(self.origin.run) == run]

    def stop(self):
        """Stops what is waited for: at once, or when it next executes something of Python. Processes are killed by the supervisor."""
        threads = [t for t in self.threads() if self.origin.threads.get(t.ident) == self.origin.now and not t.daemon]
        for x in self.pending():
            if hasattr(x, "cancel"):
                x.cancel()
        if threads:
            import ctypes

            for t in threads:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident), ctypes.py_object(SystemExit))

    def threads(self):
        threading = sys.modules.get("threading")
        return [t for t in threading.enumerate() if t.ident in self.origin.threads] if threading and self.origin.threads else []

    def works(self, thread):
        """Reports whether a thread is of an executor."""
        workers = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", ())
        return thread in workers or type(thread).__name__ == "_ExecutorManagerThread"

    def children(self):
        """Lists the processes of multiprocessing that end by themselves."""
        all = list(getattr(sys.modules.get("multiprocessing.process"), "_children", ()))
        served = [p for t in self.threads() for p in (getattr(t, "processes", None) or {}).values()] if all else []  # of executors
        for f in list(sys.modules["multiprocessing.util"]._finalizer_registry.values()) if all else ():
            if getattr(f._callback, "__name__", "") == "_finalize_manager":
                served.append(f._args[0])
        return [p for p in all if p.is_alive() and p not in served]

    def tasks(self):
        if self.events is None or self.events.is_closed():
            return []
        asyncio = sys.modules["asyncio"]
        mine = asyncio.current_task() if asyncio._get_running_loop() else None
        return [t for t in asyncio.all_tasks(self.events) if t is not mine and not t.done()]

    def serves(self, task):
        """Reports whether a task is of a listening socket, or of what that has accepted."""
        code = getattr(task.get_coro(), "cr_code", None)
        if getattr(task.get_coro(), "__qualname__", "") == "Server.serve_forever":
            return True
        accepted = [x.get_protocol() for x in list(getattr(self.events, "_transports", {}).values()) if getattr(x, "_server", None)]
        return any(code is getattr(getattr(x, "_client_connected_cb", None), "__code__", x) for x in accepted)

    def timers(self):
        """Lists what the loop is to call, but for what wakes a task that sleeps."""
        if self.events is None or self.events.is_closed():
            return []
        all = [*getattr(self.events, "_scheduled", ()), *getattr(self.events, "_ready", ())]
        return [h for h in all if not h.cancelled() and getattr(h._callback, "__name__", "") != "_set_result_unless_cancelled"]

    def servers(self):
        """Lists the sockets on which the loop listens."""
        found = []
        if self.events is not None and not self.events.is_closed():
            socket = sys.modules["socket"]
            for key in list(self.events._selector.get_map().values()):
                with socket.socket(fileno=os.dup(key.fd)) as s:
                    if s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        at = s.getsockname()
                        found.append("%s:%s" % at[:2] if isinstance(at, tuple) else str(at))
        return found

    def names(self):
        """Returns the names of all that goes on, in lines."""
        threads = quiet(self.threads)
        known = {t.ident for t in threads}
        names = [("daemon thread " if t.daemon else "thread ") + str(t.name) for t in threads]
        names += ["thread %d" % i for i in list(self.origin.threads) if i not in known]
        names += ["task " + getattr(t.get_coro(), "__qualname__", "") for t in quiet(self.tasks)]
        names += ["timer" for _ in quiet(self.timers)] + ["server " + s for s in quiet(self.servers)]
        return "\n".join(name[:MAX_NAME] for name in names[:MAX_LEFT])


def quiet(look):
    """Calls look. The code may have broken what it looks at: then there is nothing to be seen."""
    try:
        return look() or []
    except Exception:
        return []


