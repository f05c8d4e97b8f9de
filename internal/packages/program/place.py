"""Runs in a sandbox, as root beside the supervisor: says which packages there are, and puts more where code cannot change them.

It writes a line of JSON, reads one, which the contents of the files follow, and writes another. Files that are there already stay.
"""

import shutil
import signal
import stat

place, seconds = sys.argv[1], int(sys.argv[2])
signal.alarm(seconds)
os.umask(0o022)
stdin, stdout = sys.stdin.buffer, sys.stdout.buffer


def say(**fields):
    stdout.write(json.dumps(fields).encode() + b"\n")
    stdout.flush()


try:
    os.makedirs(place, exist_ok=True)
    s = os.lstat(place)
    error = "" if stat.S_ISDIR(s.st_mode) and s.st_uid == os.geteuid() and not s.st_mode & 0o022 else "it is not root's alone"
except OSError as e:
    error = e.strerror
if error:
    say(error="%s: %s" % (place, error))
    sys.exit()
for name in os.listdir(place):
    if name.startswith(".staging-") and not os.path.exists("/proc/" + name[len(".staging-") :]):
        shutil.rmtree(os.path.join(place, name), ignore_errors=True)  # left by a killed placer
have = [name[: -len(".dist-info")].rsplit("-", 1) for name in os.listdir(place) if name.endswith(".dist-info")]
if os.path.basename(place) == "node_modules":
    have = []
    for name in os.listdir(place):
        for package in [name] if name[0] != "@" else [name + "/" + n for n in os.listdir(os.path.join(place, name))]:
            try:
                with open(os.path.join(place, package, "package.json"), "rb") as f:
                    have.append([package, str(json.loads(f.read(1 << 20))["version"])[:100]])
            except (OSError, ValueError, KeyError, TypeError):
                pass  # incomplete, or not a package
say(have=[p for p in have if len(p) == 2], facts=facts())

line = stdin.readline()
if not line:
    sys.exit()
staging = os.path.join(place, ".staging-%d" % os.getpid())
fresh, error = [], ""
for name, size, executable in json.loads(line)["files"]:
    parts = name.split("/")
    if not all(parts) or ".." in parts or "." in parts or "\0" in name:
        say(error="bad name")
        sys.exit()
    keep = not error and not os.path.lexists(os.path.join(place, name))
    try:
        if keep:
            path = os.path.join(staging, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            out = open(path, "wb")
            fresh.append(name)
            if executable:
                os.chmod(out.fileno(), 0o755)
    except OSError as e:
        keep, error = False, e.strerror
    while size:
        block = stdin.read(min(size, 1 << 18))
        if not block:
            error, size = "cut short", 0
            break
        size -= len(block)
        try:
            if keep:
                out.write(block)
        except OSError as e:
            keep, error = False, e.strerror
    try:
        if keep:
            out.close()
    except OSError as e:
        error = e.strerror
try:
    if not error:
        for name in sorted(fresh, key=lambda name: ".dist-info/" in name or name.endswith("/package.json")):  # what says that the rest is there
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(os.path.join(staging, name), path)
except OSError as e:
    error = e.strerror
for parent, dirs, names in os.walk(staging, topdown=False):
    for name in names:
        os.unlink(os.path.join(parent, name))
    for name in dirs:
        os.rmdir(os.path.join(parent, name))
if os.path.isdir(staging):
    os.rmdir(staging)
say(error=error)
