"""Runs cells from a JSON list on standard input in one interpreter and writes what the host was given, one JSON list per cell."""

import builtins
import json
import os
import sys

__builtins__ = dict(vars(builtins))  # a cell may break them
source, workdir = sys.argv[1], sys.argv[2]
cells = json.load(sys.stdin)
result = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
cell = type(sys)("cell")
with open(source, encoding="utf-8") as f:
    exec(compile(f.read(), "cell.py", "exec"), cell.__dict__)

dumps, exit = json.dumps, os._exit


class Host:
    def __init__(self):
        self.events, self.input = [], b""

    def write(self, stream, data):
        data = data.decode("utf-8", "backslashreplace")
        if self.events and self.events[-1][0] == stream:
            self.events[-1][1] += data
        else:
            self.events.append([stream, data])

    def output(self, main, bundle):
        text = {}
        for k, v in bundle.items():
            v = v.decode("utf-8", "backslashreplace")
            text[k] = v if len(v) <= 5000 else "%d characters" % len(v)
        self.events.append(["main" if main else "display", text])

    def read(self, n):
        data, self.input = self.input[:n], self.input[n:]
        return data


def main():
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


main()
result.flush()
exit(0)  # what the cells left behind does not run
