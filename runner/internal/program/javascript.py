"""Interpreters of JavaScript. A supervisor loads this part with the first of them."""

import os
import struct


class JavaScript(Interpreter):
    counts = True
    # For the parser; and because an interrupt may end a callback where these checks would then end the process.
    FLAGS = ("--expose-internals", "--no-warnings", "--no-force-async-hooks-checks")

    def launch(self, control):
        sup = self.sup
        config, system, mark, env, source, node = sup.config, sup.system, self.mark, sup.env, part_of(sup.parts, "runner.cjs"), sup.node
        cwd = self.cwd or config["workdir"]
        feed, mine = os.pipe()
        self.feed = Feed(sup, mine)
        self.side, side = socketpair()
        os.set_blocking(self.side, False)

        def job(out, err):
            null = os.open("/dev/null", os.O_RDONLY)
            fds = {0: null, 1: out, 2: err, 3: control, 4: reopen(out, os.O_NONBLOCK), 5: reopen(err, os.O_NONBLOCK), 6: feed, 7: side}
            become_user(config, system, mark, fds, (), config["workdir"], range(8))
            enter(cwd)
            _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
            os.execve(node, [node, *self.FLAGS, "-e", "(() => {" + source + "})()"], env)

        self.fork(job, (control, feed, side))

    def give_input(self, run):
        if run.has_input:
            self.feed.begin(run, self.cells)
        return True

    def tell(self, what):
        try:
            os.write(self.side, what)
        except OSError:
            pass  # it is dead, or does not take what it has asked for

    def answer(self):
        self.tell(b"a")

    def interrupt(self):
        self.tell(b"i" + self.cells.to_bytes(4, "big"))  # it may be at the next one when it hears of this
        super().interrupt()  # for what it has started

    def gone(self, code, usage):
        close(self.side)
        super().gone(code, usage)


class Feed(Input):
    """The pipe to an interpreter that keeps one for all of its runs: frames of run, length and data; a length of zero is an end."""

    PAIR = struct.Struct(">II")

    def begin(self, run, number):
        self.run, self.number, self.ended, self.taken = run, number, False, None

    def put(self, data):
        self.queue.append((len(data), self.PAIR.pack(self.number, len(data)) + data))
        self.write()

    def end(self):
        if not self.ended:
            self.ended = True
            self.put(b"")

    def write(self):
        ended, self.ended = self.ended, False  # the end of a run does not close it
        super().write()
        self.ended = ended

    def over(self):
        # What has been written of this run is skipped by the next one that reads.
        first = self.queue.popleft() if self.torn else None
        self.queue.clear()
        if first is not None:
            self.queue.append(first)
        self.end()
