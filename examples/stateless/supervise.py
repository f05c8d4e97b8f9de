"""The part inside the sandbox. It runs one program, and speaks lines of JSON.

It is told {"code": ..., "dir": ..., "env": ..., "seconds": ...} and perhaps, later, anything else, which means to stop. It says that it has started,
what the program writes, and how that ended. The end of its input means that nobody listens any more, and is the end of everything.
"""

import base64
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What runs the code. Its arguments are two descriptors: where the source is, and where to say how it failed.
PROGRAM = r"""
import json, linecache, os, re, sys, traceback
source, report = open(int(sys.argv[1]), encoding="utf-8").read(), open(int(sys.argv[2]), "w", encoding="utf-8")
os.set_inheritable(report.fileno(), False)
del sys.argv[1:]
linecache.cache["<cell 1>"] = len(source), None, source.splitlines(True), "<cell 1>"
def plain(text):
    return re.sub(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]", "", text)
def tell(e):
    line = e.lineno if isinstance(e, SyntaxError) and e.filename == "<cell 1>" else 0
    whole = link = traceback.TracebackException(type(e), e, e.__traceback__)
    while link:  # the user's own frames only
        link.stack = traceback.StackSummary.from_list([f for f in link.stack if f.filename == "<cell 1>"])
        line = line or link.stack and link.stack[-1].lineno or 0
        link = link.__cause__ or link.__context__
    name = type(e).__qualname__ if type(e).__module__ in ("builtins", "__main__") else type(e).__module__ + "." + type(e).__qualname__
    json.dump({"type": name, "message": plain(str(e)), "traceback": plain("".join(whole.format())), "line": line}, report)
    report.close()
sys.modules["__main__"] = main = type(sys)("__main__")
try:
    exec(compile(source, "<cell 1>", "exec", dont_inherit=True), main.__dict__)
except SystemExit:
    raise
except BaseException as e:
    tell(e)
    sys.exit(1)
"""
MAX_REPORT = 1 << 20


def say(**frame):
    sys.stdout.write(json.dumps(frame) + "\n")
    sys.stdout.flush()


def run(request):
    source = tempfile.TemporaryFile()
    source.write(request["code"].encode("utf-8", "surrogatepass"))
    source.seek(0)
    reading, writing = os.pipe()
    fds = [source.fileno(), writing]
    child = subprocess.Popen(
        [sys.executable, "-I", "-u", "-X", "utf8", "-c", PROGRAM, *map(str, fds)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=fds, env=request["env"], cwd=request["dir"],
    )
    deadline = time.monotonic() + request["seconds"]
    say(started=True)
    source.close()
    os.close(writing)

    report, timed_out, stopped = b"", False, False
    with selectors.DefaultSelector() as waiting:
        for fd, what in ((0, "stdin"), (reading, "report"), (child.stdout.fileno(), "stdout"), (child.stderr.fileno(), "stderr")):
            os.set_blocking(fd, False)
            waiting.register(fd, selectors.EVENT_READ, what)
        ended = False
        while True:
            # What the program leaves behind may keep its output open. So its end counts, and then what is left to read.
            ready = waiting.select(0 if ended else 0.05)
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    if key.data == "stdin":
                        child.kill()
                        shutil.rmtree(request["dir"], ignore_errors=True)
                        os.killpg(0, signal.SIGKILL)
                    waiting.unregister(key.fd)
                elif key.data == "stdin":
                    stopped = True
                elif key.data == "report":
                    report = (report + data)[:MAX_REPORT]
                else:
                    say(stream=key.data, data=base64.b64encode(data).decode())
            if ended and not ready:
                break
            timed_out = timed_out or not ended and time.monotonic() > deadline
            if stopped or timed_out:
                child.kill()
            ended = child.poll() is not None
    code = child.returncode
    try:
        exception = json.loads(report)
    except ValueError:
        exception = None
    died = signal.Signals(-code).name if code < 0 else ""
    say(end={"code": max(code, -1), "signal": died, "timed_out": timed_out, "exception": exception})


run(json.loads(sys.stdin.buffer.raw.readline()))
