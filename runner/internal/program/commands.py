"""Programs that are executed without an interpreter of ours, and terminals. A supervisor loads this part with the first command."""

import errno
import fcntl
import os
import select
import struct
import warnings  # noqa: F401  # os.execvpe loads it in each process anew otherwise

TCGETS, TCSETS, TIOCSCTTY, TIOCGPGRP, TIOCSWINSZ, TIOCGPTN, TIOCSPTLCK = 0x5401, 0x5402, 0x540E, 0x540F, 0x5414, 0x80045430, 0x40045431
RETRY_SECONDS = 0.1  # between tries to type into a terminal that takes nothing
TERMINAL_BYTES = 256 << 10  # that a terminal holds of what was written to it, at most


class Command(Process):
    """A program that is executed without an interpreter of ours."""

    def __init__(self, sup, run, argv):
        super().__init__(sup)
        self.argv = argv
        self.run, run.process = run, self
        self.feed = None
        config, system, mark = sup.config, sup.system, self.mark
        env, cwd = dict(sup.env, **run.env), run.cwd or config["workdir"]
        if run.own:
            env = {"PATH": os.environ.get("PATH") or os.defpath, "LANG": "C.UTF-8"}  # nothing that is meant for user code
        elif run.size is not None:
            env.setdefault("TERM", "xterm-256color")
            # What the program has as its terminal stays open here, so that it is never hung up by itself.
            self.outs[STDOUT], self.terminal = as_user(config, open_terminal)
            self.resize(run.size)
            stdin, self.feed = self.terminal, Keyboard(sup, os.dup(self.outs[STDOUT]), run)
        if self.terminal < 0 and run.has_input:
            stdin, feed = os.pipe()
            self.feed = Input(sup, feed, run)
        elif self.terminal < 0:
            stdin = os.open("/dev/null", os.O_RDONLY)
        self.error, error = os.pipe()

        def job(out, err):
            error_fd = fcntl.fcntl(error, fcntl.F_DUPFD_CLOEXEC, 100)  # closes when the program is executed
            try:
                if run.own:
                    become_program(system, {0: stdin, 1: out, 2: err}, {error_fd})
                else:
                    become_user(config, system, mark, {0: stdin, 1: out, 2: err}, {error_fd}, cwd)
                if self.terminal >= 0:
                    fcntl.ioctl(0, TIOCSCTTY, 0)
                _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
                os.execvpe(argv[0], argv, env)
            except OSError as e:
                os.write(error_fd, b"%d %s" % (e.errno, os.fsencode(e.filename or b"")))
            os._exit(127)

        try:
            if self.terminal >= 0:
                self.spawn(lambda: job(stdin, stdin), (error,))
            else:
                self.fork(job, (stdin, error))
        except Refused:
            close(self.error, self.terminal)
            if self.feed is not None:
                self.feed.over()
            raise
        self.failure = None
        sup.watch(self.error, select.EPOLLIN, self.executed)

    def executed(self):
        """The program runs, or could not be executed."""
        if self.failure is None:
            self.failure = os.read(self.error, 4096)
            self.sup.unwatch(self.error)
            close(self.error)
            self.run.start(0, True)
            if self.feed is not None:
                self.run.connect(self.feed)
            self.listen()

    def resize(self, size):
        fcntl.ioctl(self.terminal, TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def interrupt(self):
        groups, numbers = {self.pid}, [_signal.SIGTERM]
        if self.terminal >= 0:  # as when a line is hung up; what is stopped is to hear of that, too
            groups, numbers = groups | {foreground(fd) for fd in self.outs.values()} - {0}, [_signal.SIGHUP, _signal.SIGCONT]
        for group in groups:
            for number in numbers:
                try:
                    os.killpg(group, number)
                except OSError:
                    pass

    def gone(self, code, usage):
        self.executed()
        run, fields = self.run, self.outcome(code)
        if self.failure:
            number, _, name = self.failure.partition(b" ")
            name = name or os.fsencode(self.argv[0])
            message, channel = b"%s: %s" % (name, os.strerror(int(number)).encode()), STDERR
            if self.terminal >= 0:
                message, channel = message + b"\r", STDOUT
            run.put(DATA, message + b"\n", 0, channel)
            fields = {"exit": 126 if int(number) in (errno.EACCES, errno.ENOEXEC) else 127}
        elif fields["exit"] == 128 + _signal.SIGKILL and run.out_of_memory():
            fields = {"exit": -1, "reason": "memory"}  # what a shell says of the program that it has started
        fields["cpu"] = int((usage.ru_utime + usage.ru_stime) * 1e9)
        fields["memory"] = usage.ru_maxrss << 10
        run.rest()
        if self.terminal < 0:
            self.turn(lambda: self.end(fields))
        else:
            # It does not tell how much waits in it, and others of the user may still write to it.
            self.drained = True
            self.turns.append(Turn({STDOUT: TERMINAL_BYTES}, b"", 0, lambda: self.end(fields)))
            self.pump()

    def end(self, fields):
        self.close_outputs()
        if self.terminal >= 0:
            close(self.terminal)
        self.run.finish(fields)


class Keyboard(Input):
    """A terminal, as what types into it. That nothing more is typed does not end it."""

    retry = None

    def end(self):
        pass

    def write(self):
        super().write()
        # A terminal that has dropped what was too long for a line does not say that it has room again.
        self.sup.cancel(self.retry)
        self.retry = self.sup.after(RETRY_SECONDS, self.write) if self.fd >= 0 and self.queue else None

    def over(self):
        if self.fd >= 0:
            self.sup.cancel(self.retry)
            self.sup.unwatch(self.fd)
            close(self.fd)
            self.fd = -1
            queue, self.queue = self.queue, deque()
            self.paid(sum(worth for worth, _ in queue))


def open_terminal():
    """Returns both ends of a new terminal. It belongs to the user, who opens it by its name."""
    flags, ours = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC, -1
    try:
        ours = os.open("/dev/ptmx", flags)
        fcntl.ioctl(ours, TIOCSPTLCK, struct.pack("i", 0))
        theirs = os.open("/dev/pts/%d" % struct.unpack("i", fcntl.ioctl(ours, TIOCGPTN, b"\0\0\0\0")), flags)
    except OSError as e:
        close(ours)
        raise Refused("exhausted", "no terminal: " + e.strerror) from None
    modes = bytearray(fcntl.ioctl(theirs, TCGETS, bytes(64)))
    modes[1] |= 0x40  # IUTF8: what erases a character erases all of its bytes
    fcntl.ioctl(theirs, TCSETS, bytes(modes))
    return ours, theirs


def foreground(fd):
    """Returns the process group that a terminal sends its signals to; 0 if there is none."""
    try:
        return struct.unpack("i", fcntl.ioctl(fd, TIOCGPGRP, b"\0\0\0\0"))[0]
    except OSError:
        return 0


def become_program(system, fds, keep):
    """Turns a forked process into one of the holder, as the user of the supervisor, whom user code can neither signal nor trace."""
    os.setsid()
    only_fds(fds, keep)
    default_signals()
    system.prctl(system.DEATHSIG, _signal.SIGKILL)
    if os.getppid() != system.pid:
        os._exit(137)  # the supervisor died before that
    os.umask(0o022)
    os.chdir("/")
