"""The event loop of a session: Pyodide's loop, which is that of the host. It always runs, and
outlives the code that runs in it.

asyncio expects loops that begin and end with asyncio.run. Runner records what was started while
it is open, and ends that as it would end together with a separate loop.
"""

import asyncio
import contextvars
import functools
import inspect
import weakref

from pyodide import webloop

_all_tasks, _current_task, _gather = asyncio.all_tasks, asyncio.current_task, asyncio.gather
_State = asyncio.runners._State
NESTED = "%s cannot be called from a running event loop"

# The run to which code belongs. Code that is left running keeps its run.
owner = contextvars.ContextVar("run", default=0)

timers = set()  # those of the code that have neither fired nor been cancelled


class Timer:
    """A timer of the code. It is recorded before it is started and fires only while it is recorded:
    an interrupt may hit between the two, and then nothing could cancel it."""

    def __init__(self):
        self.run, self.handle = owner.get(), None

    def cancelled(self):
        return self.handle is not None and self.handle.cancelled()

    def cancel(self):
        timers.discard(self)
        if self.handle is not None:
            self.handle.cancel()

    def fires(self):
        known = self in timers
        timers.discard(self)
        return known


class Runner(asyncio.Runner):
    __doc__ = asyncio.Runner.__doc__

    def _lazy_init(self):
        if self._state is _State.CLOSED:
            raise RuntimeError("Runner is closed")
        if self._state is _State.INITIALIZED:
            return
        loop = self._loop = asyncio.get_event_loop()  # there is only this one, whatever loop_factory would make
        self._runs, self._before = set(), set(_all_tasks(loop))
        self._generators, loop._asyncgens = loop._asyncgens, weakref.WeakSet()
        self._debugged = loop.get_debug()
        if self._debug is not None:
            loop.set_debug(self._debug)
        self._context = contextvars.copy_context()
        self._state = _State.INITIALIZED

    def run(self, coro, *, context=None):
        """Run code in the embedded event loop."""
        if _current_task() is not None:
            raise RuntimeError(NESTED % "Runner.run()")
        self._lazy_init()
        if not inspect.iscoroutine(coro):
            if not inspect.isawaitable(coro):
                raise TypeError("An asyncio.Future, a coroutine or an awaitable is required")
            coro = _wait(coro)
        if context is None:
            context = self._context
            context.run(owner.set, owner.get())
        self._runs.add(owner.get())
        return self._loop.run_until_complete(self._loop.create_task(coro, context=context))

    def close(self):
        """Shutdown and close event loop."""
        if self._state is not _State.INITIALIZED:
            return
        loop, mine = self._loop, {_current_task()}
        left = [t for t in _all_tasks(loop) - self._before - mine if t.get_context().get(owner) in self._runs]
        try:
            for t in left:
                t.cancel()
            if left:
                loop.run_until_complete(_gather(*left, return_exceptions=True))
            for t in left:
                if not t.cancelled() and t.exception() is not None:
                    message = "unhandled exception during asyncio.run() shutdown"
                    loop.call_exception_handler({"message": message, "exception": t.exception(), "task": t})
            if loop._asyncgens:
                loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            self._generators.update(loop._asyncgens)
            loop._asyncgens, loop._asyncgens_shutdown_called = self._generators, False
            loop.set_debug(self._debugged)
            self._loop, self._state = None, _State.CLOSED


async def _wait(awaitable):
    return await awaitable


@functools.wraps(asyncio.runners.run)
def run(main, *, debug=None, loop_factory=None):
    if _current_task() is not None:
        raise RuntimeError(NESTED % "asyncio.run()")
    with Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)


def _mend(loop):
    """Records the timers of the code, makes run_forever run until the loop is stopped, and leaves
    the errors of tasks to asyncio."""
    later, stopped = loop.call_later, "_execbroker_stopped"

    def call_later(self, delay, callback, *args, context=None):
        if (getattr(callback, "__module__", None) or type(callback).__module__).partition(".")[0] in ("asyncio", "_asyncio", "pyodide"):
            return later(self, delay, callback, *args, context=context)

        def call(*args):
            if timer.fires():
                callback(*args)

        timer = Timer()
        try:
            timers.add(timer)
            timer.handle = later(self, delay, call, *args, context=context)
            return timer.handle
        except BaseException:
            timer.cancel()
            raise

    async def forever(self):
        future = self.create_future()
        setattr(self, stopped, future)
        await future

    def run_forever(self):
        """Run the event loop until it is stopped."""
        self.run_until_complete(self.create_task(forever(self)))

    def stop(self):
        """Stop the event loop."""
        future = getattr(self, stopped, None)
        if future is not None and not future.done():
            future.set_result(None)

    def finished(self, future=None):
        # Pyodide would report an unhandled exception here, although the code that awaits the task
        # may still come.
        self._in_progress -= 1

    loop.call_later, loop.run_forever, loop.stop, loop._decrement_in_progress = call_later, run_forever, stop, finished
    loop.default_exception_handler = asyncio.BaseEventLoop.default_exception_handler


def complain(tasks):
    """Prints the errors of tasks that nothing else reports."""
    for t in tasks:
        if t.done() and not t.cancelled() and t._log_traceback:
            t._log_traceback = False
            t.get_loop().call_exception_handler({"message": "Task exception was never retrieved", "exception": t.exception(), "task": t})


_mend(type(asyncio.get_event_loop()))
webloop.PyodideTask.__name__, webloop.PyodideFuture.__name__ = "Task", "Future"
asyncio.run = asyncio.runners.run = run
asyncio.Runner = asyncio.runners.Runner = Runner

# An interrupt or exit that escapes from a callback of the event loop must not end the worker.
asyncio.get_event_loop()._keyboard_interrupt_handler = lambda: None
asyncio.get_event_loop()._system_exit_handler = lambda code: None
