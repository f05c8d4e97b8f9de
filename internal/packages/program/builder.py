"""Runs in a sandbox of its own: gets packages and writes them to standard output.

This is the beginning; what follows depends on the language. It is asked by a line of JSON on standard input and answers with a line of
JSON: what went wrong, or what there is, which the contents of the files follow. When standard input ends, so does it.
"""

import signal
import tempfile

ask = json.loads(sys.stdin.buffer.readline())
signal.signal(signal.SIGALRM, lambda number, stack: os._exit(1))  # the main process of a container has no default for it
signal.alarm(ask["seconds"])  # if nobody listens any more and the engine does not notice
answer = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
os.umask(0o022)
os.setgroups([])
os.setresgid(ask["uid"], ask["uid"], ask["uid"])
os.setresuid(ask["uid"], ask["uid"], ask["uid"])
os.chdir(ask["dir"] if ask["dir"] and os.access(ask["dir"], os.W_OK) else tempfile.mkdtemp())
ask["dir"] = os.getcwd()


def reply(head, files=()):
    answer.write(json.dumps(head).encode() + b"\n")
    for path in files:
        with open(path, "rb") as f:
            while block := f.read(1 << 20):
                answer.write(block)
    answer.close()
    os._exit(0)


def fail(kind, text):
    reply({"kind": kind, "error": text})


def deliver(found, notes=(), leave_out=()):
    """Answers with all that is below out, but for some directories at its top."""
    files, paths, total = [], [], 0
    for parent, dirs, names in os.walk("out"):
        if parent == "out":
            dirs[:] = [d for d in dirs if d not in leave_out]
        for name in names:
            path = os.path.join(parent, name)
            s = os.lstat(path)
            if not os.path.islink(path):
                files.append([os.path.relpath(path, "out"), s.st_size, bool(s.st_mode & 0o100)])
                paths.append(path)
                total += s.st_size
    if total > ask["max"]:
        fail("size", "the packages take %d bytes; packages.size allows %d" % (total, ask["max"]))
    reply({"packages": found, "notes": notes, "files": files}, paths)


if ask["facts"] and ask["facts"] != facts():
    fail("changed", "")
