# Wheels of a directory of the host follow the question.
import re
import subprocess
import threading

os.mkdir("wheels")
for name, size in ask["wheels"]:
    with open(os.path.join("wheels", name), "wb") as f:
        while size:
            block = sys.stdin.buffer.read(min(size, 1 << 20))
            if not block:
                os._exit(1)
            size -= len(block)
            f.write(block)


def listen():
    while os.read(0, 4096):
        pass
    os._exit(1)


threading.Thread(target=listen, daemon=True).start()

env = dict(os.environ, HOME=ask["dir"] + "/home", TMPDIR=ask["dir"] + "/tmp", PIP_CACHE_DIR=ask["dir"] + "/cache")
os.makedirs(env["TMPDIR"])
source = []
for address in ask["find_links"]:
    source += ["--find-links", address]
for host in ask["trusted"]:
    source += ["--trusted-host", host]
if ask["wheels"]:
    source += ["--find-links", "wheels"]
if ask["offline"]:
    source += ["--no-index"]
elif ask["index_url"]:
    source += ["--index-url", ask["index_url"]]
    env.pop("PIP_EXTRA_INDEX_URL", None)
    env.pop("PIP_NO_INDEX", None)
# The image may say that its Python is managed by something else. Nothing of it is changed.
env.update(PIP_BREAK_SYSTEM_PACKAGES="1", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")


COMPILE = """
import compileall, py_compile, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
compileall.compile_dir("out", quiet=2, stripdir="out", prependdir=sys.argv[1], invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""


def install(*args):
    # Only wheels: building a package would run programs of that package.
    command = [sys.executable, "-I", "-m", "pip", "install", "-vv", "--only-binary", ":all:", "--no-color", "--progress-bar", "off", "--retries", "1", "--timeout", "20", *source, *args]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        return
    said = done.stdout.decode("utf-8", "replace")
    if "No space left on device" in said:
        fail("size", "the packages take more than the %d bytes that packages.size allows" % ask["max"])
    lines = re.split(r"[\r\n]+", said)  # a pattern that begins with any text takes the square of a long line
    broken = [line for line in lines if re.search(r"Could not fetch URL|connection broken by|[45]\d\d (?:Client|Server) Error|HTTP error [45]\d\d", line)]
    broken = [line for line in broken if "404 Client Error" not in line]  # the index returns this for packages that it does not have
    if broken and "conflicting dependencies" not in said:
        fail("unreachable", broken[0])
    fail("failed", said[max(said.find("ERROR:"), 0) :][: 1 << 16])


try:
    from pip import __version__ as version
except ImportError as e:
    fail("no-pip", str(e))
if tuple(int(n) for n in version.split(".")[:2] if n.isdigit()) < (22, 2):
    fail("no-pip", "it has pip %s" % version)

for name in ("requirements", "constraints"):
    with open(name, "w") as f:
        f.writelines(r + "\n" for r in ask[name])
install("--dry-run", "--report", "report", "-c", "constraints", "-r", "requirements")
with open("report") as f:
    found = sorted((p["metadata"]["name"], p["metadata"]["version"]) for p in json.load(f)["install"])
if found:
    with open("pins", "w") as f:
        f.writelines("%s==%s\n" % p for p in found)
    install("--no-deps", "--no-compile", "--target", "out", "-r", "pins")
    # Compile now: the files will be read where they cannot be written, and never change. Source that takes too much memory is left as
    # it is: the bound is there so that only compiling fails, and not this program for want of the container's memory.
    subprocess.run([sys.executable, "-I", "-S", "-c", COMPILE, ask["place"]], stdin=subprocess.DEVNULL)

deliver(found, leave_out=["bin"])  # programs would not be found there
