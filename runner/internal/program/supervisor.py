"""The main loop: one thread around epoll, so that it can fork at any time. Nothing in it may block."""

import gc
import os
import select
import stat
import sys
import time

MAX_HOLDERS = 64
MAX_INTERPRETERS = 64
MAX_RUNS = 256
FIRST_MARK, LAST_MARK = 40000, 59999  # groups that no image uses, within what user namespaces map
OTHER_MARK = 50000  # where one begins that is not the main process: another one may be there, with the same users
SWEEP_SECONDS = 1  # for processes to die of SIGKILL, before everything of the user is killed at once
LEFT_SECONDS = 2  # likewise, before the sandbox ends
STARVED_SECONDS = 10  # likewise, for those that only wait for a processor
STUCK = 3  # the exit code when it does
LOOKS = 4  # at what is left, at least, before each of them: on a busy machine seconds say little
LOOK_SECONDS = 0.005, 0.05  # between two looks, at least and at most
CLOCK_SECONDS = 15  # between looks at the wall clock


class Sweep:
    """What find finds in a table is to die, and then is to be called."""

    def __init__(self, find, then):
        self.find, self.then = find, then
        self.begin, self.looks, self.alive, self.dead, self.done = time.monotonic(), 0, set(), set(), False
        self.forced = False  # everything of the user has been killed
        self.held = 0  # looks in a row at which something waited for more than a processor

    def check(self, table):
        self.looks += 1
        pids = self.find(table)
        self.alive = table.alive(pids)
        if self.alive:
            kill_all(self.find)
        # One that has died since the last look may have started another.
        self.done = not self.alive and (pids & table.dead) <= self.dead
        self.dead = pids & table.dead

    def late(self, seconds):
        return not self.done and self.looks >= LOOKS and time.monotonic() - self.begin > seconds

    def hopeless(self):
        """Reports whether SIGKILL does not end what is left."""
        if self.forced and self.late(LEFT_SECONDS):
            self.held = self.held + 1 if stuck(self.alive) else 0
        return self.held >= LOOKS or self.forced and self.late(STARVED_SECONDS)

    def force(self):
        if not self.forced:
            self.forced, self.looks = True, 0


class Supervisor:
    def __init__(self, parts):
        self.parts, self.system, self.memory = parts, System(), Memory()
        self.epoll, self.watched = select.epoll(), {}
        self.timers, self.timer = {}, 0
        self.later, self.dirty = [], set()
        self.holders, self.processes, self.interpreters = set(), {}, {}
        self.runs, self.active = set(), set()  # all, and those whose code has not ended
        self.sweeps, self.look, self.looked_at = [], None, 0
        self.suspended = None  # what is stopped, of a sandbox that is suspended
        self.mark = FIRST_MARK if os.getpid() == 1 else OTHER_MARK
        self.config = self.env = self.forward = None
        self.nofile = more_descriptors()
        self.operations = None
        self.contact = time.monotonic()  # when a holder was last heard
        self.fence, self.listener, self.server, self.quit = 0, None, None, None
        self.served = set()  # languages of which an interpreter has started
        self.wake, wake = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (_signal.SIGCHLD, _signal.SIGTERM):
            _signal.signal(number, lambda *args: None)  # without a handler nothing is written
        for number in (_signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, _signal.SIG_IGN)
        self.watch(self.wake, select.EPOLLIN, self.signaled)

    def late(self, part, name):
        """Returns what a part defines that is executed when something of it is first wanted."""
        if name not in globals():
            exec(part_of(self.parts, part), globals())
        return globals()[name]

    @property
    def helper(self):
        if self.operations is None:
            self.operations = self.late("helper.py", "Helper")(self)
        return self.operations

    # The loop.

    def watch(self, fd, events, call):
        """Calls call whenever one of events is there. No events mean never, and neither do errors then."""
        was = self.watched.get(fd, (0, None))[0]
        if events:
            self.watched[fd] = events, call
            if not was:
                self.epoll.register(fd, events)
            elif was != events:
                self.epoll.modify(fd, events)
        elif was:
            self.watched[fd] = was, None  # mostly it is wanted again before there is something

    def unwatch(self, fd):
        if self.watched.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def after(self, seconds, call):
        self.timer += 1
        self.timers[self.timer] = time.monotonic() + seconds, call
        return self.timer

    def cancel(self, timer):
        self.timers.pop(timer, None)

    def soon(self, call):
        self.later.append(call)

    def loop(self):
        while self.quit is None or self.holders or self.server is not None and self.server.busy():
            left = self.left() if self.config is not None and self.quit is None else CLOCK_SECONDS
            if left <= 0:
                self.end("idle" if self.life_left() > 0 else "lifetime")
            now = time.monotonic()
            wait = min([left, CLOCK_SECONDS, *[when - now for when, _ in self.timers.values()]])
            wait = 0 if self.later else max(0, wait)
            for fd, _ in self.epoll.poll(wait):
                call = self.watched.get(fd, (0, None))[1]
                if call is not None:
                    call()
                else:  # also of one that has gone in this turn
                    self.unwatch(fd)
            now = time.monotonic()
            for key in [key for key, (when, _) in self.timers.items() if when <= now]:
                if key in self.timers:
                    self.timers.pop(key)[1]()
            later, self.later = self.later, []
            for call in later:
                call()
            while self.dirty:
                self.dirty.pop().flush()

    def signaled(self):
        numbers = os.read(self.wake, 4096)
        if _signal.SIGTERM in numbers:
            self.end("terminated")
        self.bury()
        self.check_sweeps()

    def bury(self):
        """Takes note of children that have died."""
        while True:
            try:
                pid, code, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            process = self.processes.pop(pid, None)
            if process is not None:
                process.exited(code, usage)

    def reap(self):
        """Waits a moment for the dead: where this is not the first process, nobody else may do it."""
        end = time.monotonic() + 1
        try:
            while time.monotonic() < end:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
        except ChildProcessError:
            pass

    # Processes that outlive the one that started them.

    def new_mark(self):
        """Returns a group that no process is in."""
        used = {p.mark for p in self.processes.values()}
        while True:
            self.mark = self.mark + 1 if self.mark < LAST_MARK else FIRST_MARK
            if self.mark not in used:
                return self.mark

    def sweep(self, find, then):
        """Kills the processes that find finds in a table, and calls then when they are dead."""
        self.sweeps.append(Sweep(find, then))
        self.check_sweeps()

    def check_sweeps(self):
        if not self.sweeps or self.quit is not None:
            return
        wait = self.looked_at + LOOK_SECONDS[0] - time.monotonic()
        if wait > 0:  # the deaths of a fork bomb are not looked at one by one
            self.look_in(wait)
            return
        table = Table()
        for sweep in self.sweeps:
            sweep.check(table)
            if sweep.hopeless():
                self.end("stuck")
                return
            if sweep.forced and not sweep.done or sweep.late(SWEEP_SECONDS):
                sweep.force()
                self.helper.kill_all()
        # What is started before the helper has killed would die too.
        killing = self.operations is not None and self.operations.killing
        done = [s for s in self.sweeps if s.done and not killing]
        self.sweeps = [s for s in self.sweeps if s not in done]
        self.looked_at = time.monotonic()
        if self.sweeps:
            self.look_in(LOOK_SECONDS[1] if any(s.alive for s in self.sweeps) else LOOK_SECONDS[0])
        for sweep in done:
            sweep.then()

    def look_in(self, seconds):
        self.cancel(self.look)
        self.look = self.after(seconds, self.look_again)  # what is not a child of this process gives no signal

    def look_again(self):
        self.bury()
        self.check_sweeps()

    # Holders.

    def greet(self, holder, m):
        if m.get("version") != VERSION:
            holder.bye("version", "this runner speaks version %d of the protocol" % VERSION)
        elif self.config is None and self.server is not None and "config" not in m:
            holder.bye("unprepared", "its creator has not set it up")
        elif self.config is None:
            try:
                c = get(m, "config", dict, {})
                self.configure(c)
                made = compiled(self.parts) if get(c, "compile", bool, False) else {}
            except Refused as e:
                holder.bye("unsupported" if e.args[0] == "unsupported" else "refused", e.args[1])
                self.finish(1)
                return
            self.welcome(holder, made)
            holder.flush()  # its first request travels while the interpreter starts
            if self.config["languages"]:
                self.warm()
        else:
            fence = m.get("fence") if type(m.get("fence")) is int else 0
            if fence < self.fence:
                holder.bye("fenced", "a later holder has taken over")
                return
            holder.fence = self.fence = fence
            for other in list(self.holders):
                if other.greeted and other.fence < fence:
                    other.bye("fenced", "a later holder has taken over")
            self.welcome(holder)

    def welcome(self, holder, made={}):
        self.wake_up()
        self.contact = time.monotonic()
        holder.send_map(HELLO, 0, {
            **made,
            "version": VERSION, "python": "%d.%d.%d" % sys.version_info[:3], "degraded": self.degraded,
            "languages": [name for name in ("python", "javascript") if self.available(name)], "left": self.left_ns(), "workdir": self.config["workdir"],
        })  # fmt: skip

    def available(self, language):
        return language == "python" or language == "javascript" and self.node != ""

    def interpreter(self, language, context, cwd):
        return (Python if language == "python" else self.late("javascript.py", "JavaScript"))(self, language, context, cwd)

    def warm(self):
        try:
            self.interpreter(self.config["languages"][0], "", "")
        except Refused:
            pass  # the first run will say why

    def listen(self, path):
        """Accepts further holders on a socket that only the user of the supervisor can reach."""
        s = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
        try:
            s.bind("\0" + path[1:] if path.startswith("@") else path)
            s.listen(16)
        except OSError as e:
            raise Refused("invalid", "%s: %s: mount a directory of root there" % (path, e.strerror)) from None
        self.listener = s
        self.watch(s.fileno(), select.EPOLLIN, self.accept)

    def accept(self):
        try:
            fd, _ = self.listener._accept()
        except OSError:
            return
        s = _socket.socket(fileno=fd)
        peer = s.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        s.detach()
        if struct.unpack("3i", peer)[1] != os.getuid() or len(self.holders) >= MAX_HOLDERS:
            close(fd)
            return
        os.set_blocking(fd, False)
        timer = self.after(HELLO_SECONDS, lambda: self.drop(fd))

        def bring():
            # A bridge brings the two descriptors of its own standard input and output, and is not in the way afterwards.
            s = local(fd)
            try:
                data, fds = receive_fds(s, 16, 2)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            finally:
                s.detach()
            self.cancel(timer)
            if len(fds) != 2:
                close(*fds)
                self.drop(fd)
                return
            self.unwatch(fd)
            Holder(self, fds[0], fds[1], fd)

        self.watch(fd, select.EPOLLIN, bring)

    def drop(self, fd):
        self.unwatch(fd)
        close(fd)

    # Configuration.

    def configure(self, m):
        rlimits = get(m, "rlimits", dict, {})
        for name in rlimits:
            if not hasattr(resource, "RLIMIT_" + name.upper()) or get(rlimits, name, int, -1) < 0:
                raise Refused("invalid", "rlimits: %s: not known, or no number" % name)
        c = {
            "uid": get(m, "uid", int, 1000), "gid": get(m, "gid", int, 1000), "same_user": get(m, "same_user", bool, False),
            "workdir": text(get(m, "workdir", bytes, b"/workspace")), "home": text(get(m, "home", bytes, b"/tmp/home")),
            "temp": text(get(m, "temp", bytes, b"/tmp")), "socket": text(get(m, "socket", bytes, b"")),
            "node": text(get(m, "node", bytes, b"")), "languages": [text(b) for b in get(m, "languages", list, [])],
            "max_wall": get(m, "max_wall", int, -1), "max_output": get(m, "max_output", int, 1 << 60),
            "idle": get(m, "idle", int, 0), "life": get(m, "life", int, 0), "grace": get(m, "grace", int, 2 * 10**9),
            "oom_score": get(m, "oom_score", int, 500), "rlimits": rlimits, "nofile": self.nofile,
            "paths": {k: [text(p) for p in v] for k, v in get(m, "paths", dict, {}).items()},
            "network": text(get(m, "network", bytes, b"none")), "hide": [text(b) for b in get(m, "hide", list, [])],
        }  # fmt: skip
        self.parts.update(unpacked(get(m, "compiled", bytes, b"")) or parts_of(get(m, "parts", bytes)))
        self.late("working.py", "Run")
        self.degraded = []
        user = "user"
        if not c["same_user"]:
            if os.getuid() != 0:
                raise Refused("invalid", "the runner is not root and cannot give user code another uid")
            if get(m, "own", bool, False):
                self.own(c)
            if c["uid"] <= 0 or c["gid"] <= 0:
                raise Refused("invalid", "uid and gid of user code must not be root's")
            user = self.late("setup.py", "setup")(self, c, m)
        if self.server is not None:
            Guest(self.system).confine(c)
        s = self.system
        if s.libc is None:
            self.degraded.append("no ctypes: what this supervisor might do for protection itself, the sandbox has to")
        s.prctl(s.DUMPABLE, 0)
        s.prctl(s.SUBREAPER, 1)
        s.prctl(s.NO_NEW_PRIVS, 1)
        if status("self").get(b"NoNewPrivs") != [b"1"]:
            self.degraded.append("no-new-privileges is off: user code may execute set-uid programs")
        program = get(get(m, "filters", dict, {}), os.uname().machine, bytes, b"")
        if not ((s.filter(program) or get(m, "filtered", bool, False)) and s.filtered()):
            weak = "sockets of every family can be made and filters attached to them, by way of io_uring or another architecture too"
            if not get(m, "allow_weak", bool, False):
                raise Refused("unsupported", weak + ": Python needs ctypes to prevent that; or set allow_weak")
            self.degraded.append(weak)
        if not s.reduce() and int(status("self").get(b"CapPrm", [b"0"])[0], 16) & ~s.KEEP:
            self.degraded.append("the supervisor has more capabilities than it needs")
        if self.memory.file < 0:
            self.degraded.append("no memory events: out of memory looks like SIGKILL")
        self.env = {
            "PATH": os.environ.get("PATH") or os.defpath, "HOME": c["home"], "TMPDIR": c["temp"], "TZ": "UTC", "LANG": "C.UTF-8",
            "USER": user, "LOGNAME": user,
        }  # fmt: skip
        self.env.update(environment(m, "env"))
        names = [c["node"]] if c["node"] else [os.path.join(d, n) for d in self.env["PATH"].split(":") for n in ("node", "nodejs")]
        self.node = next((n for n in names if os.path.isfile(n) and os.access(n, os.X_OK)), "")
        self.directories(c)
        self.config = c
        self.terminals, self.sockets = Terminals(self), Sockets(self)
        if get(m, "ports", bool, False):
            self.forward = self.late("ports.py", "forwards")(self)
        if c["socket"]:
            self.listen(c["socket"])
        self.born = self.used_at = time.monotonic(), time.time()
        self.idle = c["idle"]

    def own(self, c):
        """Makes the working directory that of user code, or user code that of the working directory."""
        try:
            os.makedirs(c["workdir"], exist_ok=True)
            s = os.stat(c["workdir"])
            if s.st_uid == 0:
                os.chown(c["workdir"], c["uid"], c["gid"])
            else:
                c["uid"], c["gid"] = s.st_uid, s.st_gid or c["gid"]
        except OSError as e:
            raise Refused("invalid", "%s: %s" % (c["workdir"], e.strerror)) from None

    def directories(self, c):
        """Makes the user's directories, with the user's rights."""
        if not c["same_user"]:
            # The real user, too: os.access asks for that one, and before glibc 2.33 whatever effective_ids says.
            os.setgroups([])
            os.setresgid(c["gid"], c["gid"], 0)
            os.setresuid(c["uid"], c["uid"], 0)
        try:
            for name in (c["temp"], c["home"], c["workdir"]):
                try:
                    os.makedirs(name, exist_ok=True)
                except OSError as e:
                    raise Refused("invalid", "%s: %s: mount it writable for uid %d" % (name, e.strerror, c["uid"])) from None
                if not os.access(name, os.W_OK | os.X_OK):
                    raise Refused("invalid", "%s: not writable for uid %d" % (name, c["uid"]))
        finally:
            if not c["same_user"]:
                os.setresuid(0, 0, 0)
                os.setresgid(0, 0, 0)

    def repair(self):
        """Gives the user his rights to the working directory back, which code may have taken."""
        name, all_rights = self.config["workdir"], stat.S_IRWXU
        try:
            mode = os.stat(name).st_mode
            if mode & all_rights != all_rights:
                as_user(self.config, os.chmod, name, stat.S_IMODE(mode) | all_rights)
        except OSError:
            pass  # it is not the user's: what runs there will say so

    # Life.

    def used(self):
        self.used_at = time.monotonic(), time.time()

    def elapsed(self, since):
        # The monotonic clock stands still while a machine is suspended, the wall clock may be set back.
        return max(time.monotonic() - since[0], time.time() - since[1])

    def life_left(self):
        return self.config["life"] / 1e9 - self.elapsed(self.born) if self.config["life"] > 0 else float("inf")

    def left(self):
        idle = float("inf")
        if self.idle > 0 and (not self.active or self.suspended is not None):
            idle = self.idle / 1e9 - self.elapsed(self.used_at)
        return min(idle, self.life_left())

    def left_ns(self):
        """Returns for how long the sandbox will live unless it is used. -1: for ever."""
        left = self.left()
        if self.active and self.idle > 0 and self.suspended is None:
            left = min(left, self.idle / 1e9)  # counted from now on
        return -1 if left == float("inf") else max(int(left * 1e9), 0)

    def end(self, reason):
        """Ends the sandbox."""
        if self.quit is not None:
            return
        self.finish(STUCK if reason == "stuck" else 0)
        for run in list(self.runs):
            if not run.started:
                run.fail("gone", "the sandbox ended before the code was started")
                continue
            run.reason = "sandbox" if reason == "stuck" else "lifetime"
            run.end({"exit": -1, "lost": True, "gone": True})
        for holder in list(self.holders):
            holder.bye(reason, "code could not be ended, so the sandbox was" if reason == "stuck" else "")
        kill_all(lambda table: set().union(*(s.find(table) for s in self.sweeps), *(p.family(table) for p in self.processes.values())))

    def finish(self, code):
        """Ends the loop when everybody has heard why, or does not listen."""
        self.quit = code
        if self.server is not None:
            self.after(5, lambda: os._exit(code))

    def end_code(self, reason):
        """Ends all processes of the user, for taking more than they may have of what no kernel limits for a sandbox alone."""
        for process in list(self.processes.values()):
            if isinstance(process, Process) and not (process.run is not None and process.run.own):
                if process.run is not None and not process.run.reason:
                    process.run.reason = reason
                process.kill()

    def suspend(self, task):
        """Stops all processes of the user until the sandbox is used again. Its idle time begins, whatever runs."""
        if self.suspended is not None:
            task.reply(DONE, {})
            return
        if any(run.own or run.reason or not run.started for run in self.active):
            task.fail("busy", "something is being started, stopped or installed")
            return
        self.used()
        self.suspended = self.late("suspend.py", "Suspended")(self, task)

    def wake_up(self):
        """Lets go on what was stopped."""
        if self.suspended is not None:
            suspended, self.suspended = self.suspended, None
            suspended.over()

    def user_processes(self, table):
        if self.config["same_user"]:
            return set().union(*(p.family(table) for p in self.processes.values() if isinstance(p, Process)))
        return {pid for pid, (_, uid, _) in table.rows.items() if uid == self.config["uid"]}

    # Requests.

    def request(self, holder, stream, m):
        op = text(get(m, "op", bytes, b""))
        if op == "suspend":
            self.suspend(Task(holder, stream))
            return
        self.wake_up()
        self.repair()
        if op == "run":
            self.run(holder, stream, m)
        elif op == "leave":
            self.reset(Task(holder, stream), "", "", True)
        elif op == "reset":
            self.reset(Task(holder, stream), text(get(m, "language", bytes, b"")), text(get(m, "context", bytes, b"")))
        elif op == "resize":
            run = holder.streams.get(get(m, "run", int, 0))
            if isinstance(run, Run):  # else it has ended
                run.resize(size(m))
            Task(holder, stream).reply(DONE, {})
        elif op == "status":
            Task(holder, stream).reply(DONE, {"left": self.left_ns(), "runs": len(self.runs), "cpu": consumed(Table().below({os.getpid()}))})
        elif op == "keepalive":
            self.idle = max(get(m, "idle", int, 0), 1)
            self.used()
            Task(holder, stream).reply(DONE, {"left": self.left_ns()})
        elif op == "dial" and self.forward is not None:
            self.forward(holder, stream, get(m, "port", int, 0))
        elif op == "paths":
            language, paths = text(get(m, "language", bytes, b"")), [text(p) for p in get(m, "paths", list, [])]
            known = self.config["paths"].setdefault(language, [])
            known += [p for p in paths if p not in known]
            Task(holder, stream).reply(DONE, {})
        else:
            self.helper.request(holder, stream, op, m)

    def run(self, holder, stream, m):
        argv, code = get(m, "argv", list), get(m, "code", bytes)
        language, context = text(get(m, "language", bytes, b"")), text(get(m, "context", bytes, b""))
        if argv is not None:
            argv = [text(a) if type(a) is bytes and b"\0" not in a else "" for a in argv]
            if not argv or not argv[0]:
                raise Refused("invalid", "command: empty")
        elif code is None or not self.available(language):
            raise Refused("unsupported", "language %s: not in this sandbox" % (language or "none"))
        if len(self.runs) >= MAX_RUNS:
            raise Refused("exhausted", "more than %d runs at once" % MAX_RUNS)
        run = Run(self, holder, stream, m)
        if argv is None:
            busy = self.interpreters.get((language, context))
            if busy is not None and busy.run is not None:
                run.fail("busy", "the interpreter is running something")
                return
        start = lambda: self.begin(run, language, context, code, argv)  # noqa: E731
        if run.artifacts:
            self.helper.scan(run, start)
        else:
            start()

    def begin(self, run, language, context, code, argv=None):
        if run.ended:
            return
        try:
            if argv is not None:
                self.late("commands.py", "Command")(self, run, argv)
                return
            interpreter = self.interpreters.get((language, context))
            if interpreter is None:
                if len(self.interpreters) >= MAX_INTERPRETERS:
                    raise Refused("exhausted", "more than %d interpreters" % MAX_INTERPRETERS)
                interpreter = self.interpreter(language, context, run.cwd if context else "")
            if interpreter.run is not None:
                raise Refused("busy", "the interpreter is running something")
            interpreter.assign(run, code)
        except Refused as e:
            run.fail(*e.args)
        except OSError as e:  # out of descriptors
            run.fail("exhausted", e.strerror)

    def reset(self, task, language, context, last=False):
        """Ends interpreters. With last the sandbox ends next: then only those that have something left to do, and are idle."""
        which = [i for i in self.processes.values() if isinstance(i, Interpreter)
                 and language in ("", i.language) and context in ("", i.context) and (not last or i.exits and i.run is None)]  # fmt: skip
        for i in which:
            if i.run is not None and not i.run.reason:
                i.run.reason = "reset"
            i.leave()

        def done():
            if any(not i.over for i in which):
                self.after(0.005, done)
            elif last or any(isinstance(p, Process) for p in self.processes.values()):
                task.reply(DONE, {})  # what code shares, others may use
            else:
                self.helper.forget(task)

        done()


def take(name):
    """Returns what a file of root holds, and removes it."""
    with open(name, "rb") as f:
        data = f.read()
    try:
        os.unlink(name)
    except OSError:
        pass  # a baked-in program; or it is readable for root only
    return data


def main(parts):
    gc.disable()
    sup = Supervisor(parts)
    if "http" in parts:
        sup.server = Server(sup, int(sys.argv[3]), sys.argv[2], float(sys.argv[4]))
        take(sys.argv[1])
    else:
        Holder(sup, 0, 1)
    gc.enable()
    try:
        sup.loop()
        sup.reap()
        os._exit(sup.quit)
    except Child as c:
        job = c.job
    del sup
    job()


if __name__ == "runner":
    main(PARTS)
else:
    exec(part_of(PARTS, "interpreter.py"))
