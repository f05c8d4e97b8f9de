"""Processes of user code, and commands."""

import fcntl
import gc
import os
import select
import time
from _collections import deque

PAUSE_SECONDS = 0.001  # between looks at a program that prints little at a time, but all the time
SMALL = 32 << 10


class Child(BaseException):
    """Unwinds the stack of the supervisor in a forked process, which then calls job."""

    def __init__(self, job):
        self.job = job


class Turn:
    """A piece of a value, or the end of a run, and how many bytes of each channel come before it."""

    def __init__(self, before, data, flags, then):
        self.before, self.data, self.flags, self.then = before, data, flags, then


class Process:
    """A process of user code, and the pipes of its output. Subclasses say what its end means."""

    def __init__(self, sup):
        self.sup, self.run, self.pid, self.run_began = sup, None, 0, 0
        self.killed = self.over = False
        self.terminal = -1  # the end of the program's, of one that has one
        self.drained = False  # what is not there to be read now will not come any more
        self.mark = sup.new_mark()
        self.outs = {}  # descriptors by channel
        self.turns = deque()  # what is to be passed on or done between pieces of text
        self.passed_at, self.rest = 0, None  # when text was passed on last, and the timer of a pause

    def fork(self, job, theirs):
        """Starts job(out, err) in a process. theirs are descriptors of its own."""
        (ro, wo), (re, we) = os.pipe(), os.pipe()
        self.outs = {STDOUT: ro, STDERR: re}
        for fd in ro, re:
            try:
                fcntl.fcntl(fd, F_SETPIPE_SZ, CHUNK)  # fewer turns for a lot of output
            except OSError:
                pass
        self.spawn(lambda: job(wo, we), (wo, we, *theirs))

    def spawn(self, job, theirs):
        """Starts job in a process whose output comes from outs."""
        try:
            self.pid = fork(self.sup, job)
        except Refused:
            self.close_outputs()
            close(*theirs)
            raise
        close(*theirs)
        for fd in self.outs.values():
            os.set_blocking(fd, False)
        self.sup.processes[self.pid] = self

    def take(self, channel):
        """Returns how much of a channel may be read now."""
        if self.run is None:
            return CHUNK  # written between runs, by what one of them has left: it belongs to none, and is dropped
        n = self.run.room() if self.run.started else 0
        return min(n, self.turns[0].before.get(channel, 0)) if self.turns else n

    def pump(self):
        """Passes on what there is and may be."""
        n = self.pass_text()
        while self.turns and self.pass_value():
            n += self.pass_text() if self.turns else 0
        # To be woken for each line would cost more than the line.
        now = time.monotonic()
        pause = 0 < n < SMALL and now - self.passed_at < 2 * PAUSE_SECONDS and not self.turns
        if n:
            self.passed_at = now
        if pause and self.rest is None:
            self.rest = self.sup.after(PAUSE_SECONDS, self.rested)
        self.listen()

    def listen(self):
        """Sees to it that pump is called when there is something that may be passed on."""
        for channel, fd in self.outs.items():
            self.sup.watch(fd, select.EPOLLIN if self.take(channel) > 0 and self.rest is None else 0, self.pump)

    def rested(self):
        self.rest = None
        self.pump()

    def pass_text(self):
        total = 0
        for channel, fd in list(self.outs.items()):
            for _ in range(4):
                n = min(self.take(channel), CHUNK)
                if n <= 0:
                    break
                try:
                    data = os.read(fd, n)
                except BlockingIOError:
                    if not self.drained:
                        break
                    data = b""
                except OSError:  # what a terminal says that nobody has open
                    data = b""
                if not data:
                    self.sup.unwatch(fd)
                    close(fd)
                    del self.outs[channel]
                    break
                total += len(data)
                if self.turns:
                    self.turns[0].before[channel] -= len(data)
                if self.run is not None:
                    self.run.put(DATA, data, 0, channel)
        return total

    def pass_value(self):
        """Takes the first turn if all text before it is passed on, and reports whether it was taken."""
        turn = self.turns[0]
        if any(turn.before.get(channel) for channel in self.outs):
            return False
        while turn.data:
            n = min(self.run.room(), len(turn.data))
            if n <= 0:
                return False
            piece, turn.data = turn.data[:n], turn.data[n:]
            self.run.put(OUTPUT, piece, turn.flags | MORE if turn.data else turn.flags)
        self.turns.popleft()
        turn.then()
        return True

    def turn(self, then, data=b"", flags=0):
        """Passes a piece of a value on and calls then, as soon as everything that has been written so far is passed on."""
        before = {c: max(pending(fd) - sum(t.before.get(c, 0) for t in self.turns), 0) for c, fd in self.outs.items()}
        self.turns.append(Turn(before, data, flags, then))
        self.pump()

    def close_outputs(self):
        for fd in self.outs.values():
            self.sup.unwatch(fd)
            close(fd)
        self.outs.clear()

    def kill(self):
        """Kills the process and all that it has started. If something of it is left after that, the sandbox ends."""
        if not self.killed and self.pid in self.sup.processes:
            self.killed = True
            if self.run is not None:
                self.run.rest()  # what cannot be stopped keeps no sandbox alive
            self.sup.sweep(self.family, lambda: None)

    def family(self, table):
        """Returns the process and what it has started, dead or alive."""
        config = self.sup.config
        if config["same_user"]:
            return table.below([self.pid]) | self.left(table)
        return self.left(table) | ({self.pid} & table.rows.keys())

    def left(self, table):
        """Returns what the process has started, without itself."""
        config = self.sup.config
        if config["same_user"]:
            # These are below this process and below none that still runs.
            return table.below([os.getpid()]) - table.below(self.sup.processes) - {os.getpid()}
        return table.marked(config["uid"], self.mark) - {self.pid}

    def of_run(self, table):
        """Returns what the process has started since its run began, without itself."""
        return {pid for pid in self.family(table) - {self.pid} if started(pid) >= self.run_began}

    def exited(self, code, usage):
        # What it has left is killed before its end is told, and cannot write any more.
        def then():
            self.over = True
            self.gone(code, usage)

        self.sup.sweep(self.left, then)

    def outcome(self, code):
        """Says how a process ended that did not say so itself."""
        if not os.WIFSIGNALED(code):
            return {"exit": os.WEXITSTATUS(code)}
        number = os.WTERMSIG(code)
        if number == _signal.SIGKILL and self.killed:
            return {"exit": -1, "reason": "code"}  # by us, because of what it did
        if number == _signal.SIGKILL and self.run.out_of_memory():
            return {"exit": -1, "reason": "memory"}
        return {"exit": -1, "reason": "signal", "signal": signal_name(number)}

    def interrupt(self):
        raise NotImplementedError

    def gone(self, code, usage):
        """The process and all that it has started are dead."""
        raise NotImplementedError
