"""The Python half of the worker: connects the cells of execbroker_cell with the streams, the event
loop and the interrupts of the host.

Loading this module changes only the process-wide settings at its end, so it can be part of a memory
snapshot. Everything that depends on the host of the process comes with begin().
"""

import asyncio
import atexit
import io
import json
import os
import random
import signal
import sys
import time

import execbroker_cell as cell
from execbroker_loop import complain as _complain, owner as _run, timers as _timers

WORKDIR = "/workspace"
OUTPUT = "/dev/output"
MAX_OUTPUT = 48 << 20  # bytes of a value in all its representations

_write, _read, _open = os.write, os.read, os.open
_dumps, _loads = json.dumps, json.loads
_all_tasks, _current_task, _sleep, _now = asyncio.all_tasks, asyncio.current_task, asyncio.sleep, time.monotonic
_Future, _cancel = asyncio.Future, asyncio.Future.cancel  # of a task: ends it without running its handlers
_bytes = int.to_bytes
_FDS = {"stdin": 0, "stdout": 1, "stderr": 2}


def _size(n):
    return _bytes(n, 4, "big")


def _text(data):
    """Encodes bytes as a value of package wire."""
    return [b"s", _size(len(data)), data]


class _Host:
    """The host of cell.py: text and input use the ordinary descriptors, values use a device."""

    def __init__(self):
        self.run = 0  # the run in progress
        self._output = _open(OUTPUT, os.O_WRONLY)

    def open(self, stream):
        raw = io.FileIO(_FDS[stream], "wb", closefd=False)
        raw.name = "<%s>" % stream
        return raw

    def stray(self):
        return self.run == 0 or _run.get() not in (0, self.run)  # what cannot be told belongs to the run in progress

    def read(self, n):
        return b"" if self.stray() else _read(0, n)

    def output(self, main, bundle):
        if self.stray():
            return
        parts, left = [], MAX_OUTPUT
        for mime, data in bundle.items():
            if len(data) > left:
                continue
            left -= len(data)
            parts += _text(mime.encode("ascii")) + _text(data)
        head = [b"m", _size(2), *_text(b"main"), b"t" if main else b"f", *_text(b"data"), b"m", _size(len(parts) // 6)]
        _write(self._output, b"".join(head + parts))

    def fileno(self, stream):
        return _FDS[stream]


class _Session:
    def __init__(self, settle):
        self.host = _Host()
        self.host.linger = self.linger
        self.interpreter = cell.Interpreter(self.host, WORKDIR)
        self.interpreter.after_import("zoneinfo._common", _find_zones)
        self.settle = settle  # called with the result of a cell that awaits
        self.before = ()
        self.task = None
        self.most = -1

    def run(self, source, number, request):
        """Runs a cell. Returns its result as JSON, or None if it awaits: then settle gets it."""
        request = _loads(request)
        state = cell.scan(WORKDIR) if request["changes"] else None
        loop = asyncio.get_event_loop()
        self.before = set(_all_tasks(loop))
        self.task = None
        self.most = request["linger"]
        _run.set(number)
        self.host.run = number
        self.interpreter.sift(bool(self.before or _timers))
        r = None
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            r = self.interpreter.run(source, number, request["dir"], request["env"])
            if isinstance(r, cell.Outcome):
                _ignore_interrupts()
        except KeyboardInterrupt:  # just before or after the cell
            _ignore_interrupts()
            r = r or cell.Outcome(130, None, True)
        if isinstance(r, cell.Outcome):
            return self._end(r, state)
        self.task = loop.create_task(r)
        self.finish = lambda: self._done(self.task, state)
        self.task.add_done_callback(lambda t: self.finish())
        return None

    def _done(self, task, state):
        if self.host.run == 0:
            return  # that was already reported
        try:
            outcome = task.result()
        except BaseException:  # the task was cancelled before it began, or the interrupt hit the loop
            outcome = cell.Outcome(130, None, True)
        _ignore_interrupts()
        self.settle(self._end(outcome, state))

    async def linger(self):
        """Waits for the tasks and timers that the run has started."""
        pause, end = 0.001, float("inf") if self.most < 0 else _now() + self.most
        seen = set()
        try:
            while _now() < end and (found := self.pending()):
                seen.update(found)
                await _sleep(pause)
                pause = min(2 * pause, 0.02, max(end - _now(), 0))
        except BaseException:  # an interrupt, which the tasks may not have received
            for x in self.pending():
                x.cancel()
            for _ in range(10):
                if self.pending():
                    await _sleep(0)
            raise
        _complain(t for t in seen if isinstance(t, _Future))

    def pending(self):
        """Lists the tasks and timers of the run in progress, without that of the cell."""
        mine = {self.task, _current_task()}
        tasks = [t for t in _all_tasks(asyncio.get_event_loop()) if t not in self.before and t not in mine and not t.done()]
        return tasks + [t for t in _timers if t.run == self.host.run and not t.cancelled()]

    def cancel_timers(self):
        """Cancels the timers of the run in progress."""
        for t in list(_timers):
            if t.run == self.host.run:
                t.cancel()

    def names(self):
        """Names what still runs."""
        _timers.difference_update([t for t in _timers if t.cancelled()])
        mine = {self.task, _current_task()}
        tasks = [t for t in _all_tasks(asyncio.get_event_loop()) if t not in mine and not t.done()]
        return (["task " + getattr(t.get_coro(), "__qualname__", "") for t in tasks] + ["timer"] * len(_timers))[:21]

    def _end(self, outcome, state):
        if outcome.interrupted:
            self.cancel_timers()  # the code that has done it may have been interrupted too
        self.host.run = 0
        left = self.names()
        self.interpreter.sift(bool(left))
        end = {"exit": outcome.exit_code, "exception": outcome.exception, "left": "\n".join(left)}
        if state is not None:
            end["changes"] = [(name, size, str(mtime)) for name, size, mtime in cell.changes(WORKDIR, state)]
        return _dumps(end)

    def leave(self):
        """Calls the exit handlers of the code. Their output is dropped."""
        try:
            atexit._run_exitfuncs()
        except BaseException:
            pass
        return True

    def interrupt(self, again):
        """Cancels what the run has started. again says that the run was interrupted before."""
        handler = _ignore_interrupts()
        try:
            if again and self.task is not None and self.task.done():
                return self.finish()  # an interrupt has hit the code that should have done this
            self.cancel_timers()
            for t in _all_tasks(asyncio.get_event_loop()) - self.before:
                waiter = t._fut_waiter
                if not again or waiter is not None and not waiter.done():
                    t.cancel()
                    continue
                # Nothing will wake this task: an interrupt has hit the event loop itself, and the
                # task's next step is lost.
                try:
                    t.get_coro().close()
                    _cancel(t)
                except RuntimeError:  # the task is alive and ignores the interrupt
                    pass
        finally:
            if self.host.run:
                signal.signal(signal.SIGINT, handler)


def _find_zones(module):
    """Makes zoneinfo read zones directly from the library: through importlib it would read the
    table of that archive each time."""
    load, library = module.load_tzdata, json.__spec__.loader

    def load_tzdata(key):
        try:
            return io.BytesIO(library.get_data("%s/tzdata/zoneinfo/%s" % (library.archive, key)))
        except (AttributeError, OSError):
            return load(key)

    module.load_tzdata = load_tzdata


def _ignore_interrupts():
    """Ignores interrupts from now on and returns the previous handler. A late interrupt would
    hit the code that handles an interrupt or the end of a cell."""
    handler = signal.getsignal(signal.SIGINT)
    while True:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return handler
        except KeyboardInterrupt:
            pass


def begin(settle, sleep, env):
    """Makes this process a session. sleep(seconds) blocks and can be interrupted."""
    os.environ.clear()
    os.environ.update(_loads(env))
    random.seed()
    sys.path[:] = dict.fromkeys(sys.path)
    time.sleep = _sleeper(sleep)
    return _Session(settle)


def _sleeper(block):
    # Pyodide's own sleep yields to the event loop, where no interrupt arrives.
    def sleep(seconds, /):
        """sleep(seconds)

        Delay execution for a given number of seconds."""
        seconds = seconds.__index__() if hasattr(seconds, "__index__") else float(seconds)
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        try:
            block(seconds)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None  # without the frames of the host

    return sleep
