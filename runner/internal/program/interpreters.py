"""Processes that keep state from run to run."""

import marshal
import os
import sys
from _collections import deque

FIRST_SECONDS = 25  # for a new interpreter to accept code
ANSWER_SECONDS = 5  # for one that has run code before
LEAVE_SECONDS = 1  # for one to call what code has registered for its end
MAX_LEFT = 21  # names of processes
MAX_TURNS = 8  # taken from an interpreter that does not wait
ASKS = 1  # channel of an Output frame after which the interpreter waits until it is passed on


class Control(Peer):
    """The connection to an interpreter. What comes over it may be forged by the code that runs there."""

    def __init__(self, sup, fd, interpreter):
        self.interpreter = interpreter
        super().__init__(sup, fd, fd)

    def receive(self, kind, flags, channel, stream, payload):
        self.interpreter.receive(kind, flags, channel, payload)

    def broken(self, e):
        self.shut()
        self.interpreter.kill()

    def lost(self):
        self.shut()
        # Mostly the process is dead, as its status will tell in a moment. If it lives, it can be used no longer.
        self.sup.after(1, self.interpreter.kill)


class Interpreter(Process):
    """A process that keeps state from run to run."""

    counts = False  # what it has taken of its input only it knows

    def __init__(self, sup, language, context, cwd):
        super().__init__(sup)
        self.language, self.context, self.cwd = language, context, cwd
        self.cells, self.request, self.timer, self.feed = 0, None, None, None
        self.asked = 0  # answers that it waits for
        self.known = set()  # processes that it has not left running
        self.exits = False  # code has registered something to be called at its end
        self.starved = False  # it was killed because it did not start, and had only waited for a processor
        mine, theirs = socketpair()
        try:
            self.launch(theirs)
        except Refused:
            close(mine)
            raise
        self.control = Control(sup, mine, self)
        sup.interpreters[language, context] = self
        self.listen()

    def launch(self, control):
        raise NotImplementedError

    def give_input(self, run):
        """Connects the standard input of a run."""
        raise NotImplementedError

    def assign(self, run, code):
        """Gives the interpreter something to run."""
        run.process, self.run, self.request = self, run, code
        self.run_began = ticks()
        for fd in self.outs.values():
            left = pending(fd)
            while left > 0:  # written before this run
                left -= len(os.read(fd, min(left, CHUNK)))
        self.cells += 1
        self.listen()  # nothing is read until the run has started
        if not self.give_input(run):
            self.kill()
            return
        self.control.send_map(OPEN, 1, {
            "code": code, "cell": self.cells, "dir": run.cwd, "env": run.env, "stdin": run.has_input,
            "paths": self.sup.config["paths"].get(self.language, []), "linger": run.linger, "typescript": run.typescript,
        })  # fmt: skip
        self.timer = self.sup.after(FIRST_SECONDS if self.cells == 1 else ANSWER_SECONDS, self.overdue)

    def overdue(self):
        self.starved = b"R" in states(self.pid)
        self.kill()

    def answer(self):
        """Tells the interpreter that its value is passed on, so that what it writes from now on comes after it."""
        raise NotImplementedError

    def receive(self, kind, flags, channel, payload):
        run = self.run
        if kind == STARTED and run is not None and not run.started:
            self.sup.cancel(self.timer)
            self.request = None
            self.sup.served.add(self.language)
            run.start(self.cells, self.cells == 1)
            if run.has_input:
                run.connect(self.feed)
            self.listen()
        elif kind == OUTPUT and (run is None or not run.started):
            if channel == ASKS and not flags & MORE:  # of something that was left running: nobody hears of it
                self.answer()
        elif kind == OUTPUT:
            asks = channel == ASKS and not flags & MORE
            self.asked += asks
            self.turn(self.passed if asks else self.shorter, payload, flags)
            if run.reason:
                self.hurry()
            self.control.pause(len(self.turns) >= MAX_TURNS)
        elif kind == DONE and run is not None and run.started:
            try:
                fields = self.verdict(unpack(payload))
            except Refused as e:
                raise Malformed(str(e)) from None
            # What is left to do is the holder's. However long that takes, the code has ended.
            run.rest()
            if run.reason:  # it was stopped, and with it what it has started
                self.sup.sweep(self.of_run, lambda: self.run is run and self.turn(lambda: self.done(fields)))
            else:
                self.turn(lambda: self.done(fields))
            self.control.pause(self.run is run)
        else:
            raise Malformed("unexpected frame")

    def passed(self):
        if self.asked > 0:
            self.asked -= 1
            self.answer()
        self.shorter()

    def shorter(self):
        self.control.pause(len(self.turns) >= MAX_TURNS)

    def verdict(self, m):
        """Returns what may be believed of what an interpreter says about a run."""
        fields = {
            "exit": get(m, "exit", int, 0) & 0xFF, "cpu": max(get(m, "cpu", int, 0), 0),
            "interrupted": get(m, "interrupted", bool, False), "fresh": self.cells == 1, "left": get(m, "left", bytes, b"")[:8192],
            "kids": get(m, "kids", bool, True),
        }  # fmt: skip
        self.exits = get(m, "exits", bool, False)
        if self.counts:
            self.feed.taken = get(m, "taken", int)
        e = get(m, "exception", dict)
        if e is not None:
            fields["exception"] = {k: get(e, k, bytes, b"")[: 256 << 10] for k in ("type", "message", "traceback")}
            fields["exception"]["line"] = max(get(e, "line", int, 0), 0)
        return fields

    def done(self, fields):
        run, self.run = self.run, None
        if fields.pop("kids"):
            fields["left"] = b"\n".join([s for s in [fields["left"]] if s] + self.strangers())
        self.listen()
        self.control.pause(False)
        run.finish(fields)

    def strangers(self):
        """Names the processes that it has left running. One that is known not to be such is not looked at again."""
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self.known &= pids
        table = Table(None if self.sup.config["same_user"] else pids - self.known)
        left = table.alive(self.left(table))
        self.known |= table.rows.keys() - left
        return [b"process %d %s" % (pid, command_line(pid)) for pid in sorted(left)[:MAX_LEFT]]

    def interrupt(self):
        try:
            os.killpg(self.pid, _signal.SIGINT)
        except OSError:
            pass
        self.hurry()

    def hurry(self):
        """Makes sure that an interpreter that waits for an answer hears of an interrupt."""

    def leave(self):
        """Ends the process. One that is idle calls before that what code has registered for its end."""
        if self.run is not None or not self.exits:
            self.kill()
            return
        self.retire()
        self.control.shut()
        self.sup.after(LEAVE_SECONDS, lambda: self.over or self.kill())

    def kill(self):
        self.retire()
        super().kill()

    def retire(self):
        """Makes the next use start anew."""
        key = self.language, self.context
        if self.sup.interpreters.get(key) is self:
            del self.sup.interpreters[key]

    def exited(self, code, usage):
        self.retire()
        super().exited(code, usage)

    def gone(self, code, usage):
        self.control.shut()
        self.sup.cancel(self.timer)
        if self.feed is not None:
            Input.over(self.feed)
        run = self.run
        if run is None:
            self.close_outputs()
        elif not run.started and not run.reason and self.cells > 1:
            # It was given code and did not take it: that code has not run, so that it can run elsewhere.
            self.close_outputs()
            self.run = run.process = None
            self.sup.begin(run, self.language, self.context, self.request)
        elif not run.started:
            said = os.read(self.outs[STDERR], 4096) if pending(self.outs[STDERR]) else b""
            self.close_outputs()
            fields = self.outcome(code)
            how = fields.get("signal") or fields.get("reason") or "exit code %d" % fields["exit"]
            how = "the interpreter did not start: %s\n%s" % (how, said.decode("utf-8", "replace"))
            if run.reason and run.reason not in ("processes", "memory"):
                run.fail("canceled", "stopped before it was started")
            elif self.starved or self.language not in self.sup.served:
                run.fail("unavailable", how)
            else:  # others did, before code has changed what it could
                run.start(self.cells, True)
                run.rest()
                run.put(DATA, os.fsencode(how), 0, STDERR)
                run.end({"reason": "code", **fields, "exit": -1, "lost": True, "fresh": True})
        else:
            fields = dict(self.outcome(code), lost=True, fresh=self.cells == 1)
            self.turns = deque(t for t in self.turns if t.data)  # it may have said how the code ended, and died
            self.asked = 0
            run.rest()
            self.turn(lambda: self.end(fields))

    def end(self, fields):
        self.close_outputs()
        self.run.finish(fields)


def enter(cwd):
    try:
        os.chdir(cwd)
    except OSError:
        pass  # the run that wants to begin there will fail by itself


# What an interpreter of Python begins with. Its program is in a file without a name, and it goes on with built-in names of its own.
LOADER = """import builtins, os, sys
import marshal
with open(6, "rb") as f:
    code, names = marshal.load(f)
for n in 3, 4, 5:
    os.set_inheritable(n, False)
exec(code, dict(names, __builtins__=dict(vars(builtins))))
"""


class Python(Interpreter):
    """An interpreter of Python. It is executed anew: the supervisor's memory holds what earlier runs were given."""

    def launch(self, control):
        sup = self.sup
        config, system, mark, env = sup.config, sup.system, self.mark, sup.env
        cwd = self.cwd or config["workdir"]
        parts = {name: sup.parts[name] for name in ("cell.py", "notebook.py", "interpreter.py")}
        program = os.memfd_create("interpreter")
        with open(program, "wb", closefd=False) as f:
            marshal.dump((CODE, {"PARTS": parts, "CONFIG": {"workdir": config["workdir"]}, "__name__": "interpreter"}), f)
        os.lseek(program, 0, os.SEEK_SET)

        def job(out, err):
            null = os.open("/dev/null", os.O_RDONLY)
            fds = {0: null, 1: out, 2: err, 3: control, 4: reopen(out), 5: reopen(err), 6: program}
            become_user(config, system, mark, fds, (), config["workdir"], range(7))
            enter(cwd)
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-X", "utf8", "-c", LOADER], env)

        self.fork(job, (control, program))

    def answer(self):
        self.control.send(CREDIT, 1)
        if self.control.full():  # it does not take what it has asked for
            self.kill()

    def hurry(self):
        # Its values are not passed on, but are still in their order.
        while self.asked > 0:
            self.asked -= 1
            self.answer()

    def give_input(self, run):
        if not run.has_input:
            return True
        theirs, feed = os.pipe()
        self.feed = Input(self.sup, feed, run)
        sent = send_fd(self.control.wfd, frame(DATA, 1), theirs)
        close(theirs)
        return sent
