"""Runs cells from a JSON list of lists on standard input, each list in one interpreter, and writes what the host was given, a JSON object per cell."""

import builtins
import io
import json
import os
import sys

__builtins__ = dict(vars(builtins))  # a cell may break them
source, workdir = sys.argv[1], sys.argv[2]
sys.path[:] = [p for p in sys.path if "-packages" not in p]  # what is installed here is not there for everybody
groups = json.load(sys.stdin)
result = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
cell = type(sys)("cell")
with open(source, encoding="utf-8") as f:
    exec(compile(f.read(), "cell.py", "exec"), cell.__dict__)

dumps, exit = json.dumps, os._exit


class Raw(io.RawIOBase):
    def __init__(self, host, stream):
        self.host, self.stream = host, stream
        self.name, self.mode = "<%s>" % stream, "wb"

    def writable(self):
        return True

    def write(self, data):
        text, events = bytes(data).decode("utf-8", "backslashreplace"), self.host.events
        if events and events[-1][0] == self.stream:
            events[-1][1] += text
        else:
            events.append([self.stream, text])
        return len(data)


class Host:
    def __init__(self):
        self.events, self.input = [], b""

    def open(self, stream):
        return Raw(self, stream)

    def output(self, main, bundle):
        text = {}
        for k, v in bundle.items():
            v = v.decode("utf-8", "backslashreplace")
            text[k] = v if len(v) <= 5000 else "%d characters" % len(v)
        self.events.append(["main" if main else "display", text])

    def read(self, n):
        data, self.input = self.input[:n], self.input[n:]
        return data


def main(cells):
    host, loop = Host(), None
    it = cell.Interpreter(host, workdir)
    for n, c in enumerate(cells, 1):
        host.events, host.input = [], c.get("stdin", "").encode()
        r = it.run(c["source"], cell=n, dir=c.get("dir"), env=c.get("env"))
        if hasattr(r, "send"):
            import asyncio

            loop = loop or asyncio.new_event_loop()
            task = loop.create_task(r)
            if c.get("cancel"):
                loop.call_later(0.05, task.cancel)
            r = loop.run_until_complete(task)
        out = {"events": host.events, "exit": r.exit_code}
        if r.exception:
            out["exception"] = r.exception
        if r.interrupted:
            out["interrupted"] = True
        result.write(dumps(out) + "\n")


fork, wait, mkdir, join = os.fork, os.waitpid, os.mkdir, os.path.join
for n, group in enumerate(groups):
    pid = fork()
    if pid == 0:
        workdir = join(workdir, str(n))
        mkdir(workdir)
        main(group)
        result.flush()
        exit(0)  # what the cells left behind does not run
    if wait(pid, 0)[1]:
        exit(1)
exit(0)
