# It is a hand of the host, which decides what is needed: it gets documents of a registry and passes
# them on, and then gets archives and unpacks them. No npm is needed for that, and no program of a
# package is ever run.
import concurrent.futures
import errno
import gzip
import hashlib
import http.client
import platform
import queue
import threading
import traceback
import urllib.error
import urllib.parse
import urllib.request
import zlib

MAX_DOCUMENT = 64 << 20
MAX_HEADER = 1 << 20  # bytes of a name that does not fit into its field

lines = queue.Queue()


def listen():
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(1)


threading.Thread(target=listen, daemon=True).start()


class Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, to):
        if urllib.parse.urlsplit(to).scheme != "https" and not ask["insecure"]:
            raise urllib.error.URLError("%s leads to http, by which anybody on the way can exchange packages" % req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, to)


web = urllib.request.OpenerDirector()  # opens only http and https
for handler in ("ProxyHandler", "HTTPHandler", "HTTPSHandler", "HTTPDefaultErrorHandler", "HTTPErrorProcessor", "UnknownHandler"):
    web.add_handler(getattr(urllib.request, handler)())
web.add_handler(Redirects())


class TooLarge(Exception):
    pass


class Bad(Exception):
    pass


class Unreachable(Exception):
    pass


def download(url, path, most):
    """Returns False if an address does not exist."""
    for last in (False, True):
        try:
            accept = "application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*; q=0.1"
            size = 0
            with web.open(urllib.request.Request(url, headers={"Accept": accept}), timeout=20) as r, open(path, "wb") as out:
                while block := r.read(1 << 16):
                    size += len(block)
                    if size > most:
                        raise TooLarge("%s has more than %d bytes" % (url, most))
                    out.write(block)
                if r.length:
                    raise http.client.IncompleteRead(b"", r.length)
            return True
        except urllib.error.HTTPError as e:
            if e.code == 404:
                return False
            if last or e.code < 500:
                raise Unreachable("%s: HTTP status %d" % (url, e.code))
        except (OSError, http.client.HTTPException) as e:
            if getattr(e, "errno", None) == errno.ENOSPC:
                raise TooLarge("no space is left")
            if last:
                raise Unreachable("%s: %s" % (url, e))


def document(job):
    number, name = job
    path = "document-%d" % number
    url = ask["registry"].rstrip("/") + "/" + urllib.parse.quote(name, safe="@")
    return name, path if download(url, path, MAX_DOCUMENT) else ""


def send_documents(names):
    found = [(n, p) for n, p in pool.map(document, enumerate(names)) if p]
    answer.write(json.dumps({"documents": [[n, os.path.getsize(p)] for n, p in found]}).encode() + b"\n")
    for _, path in found:
        with open(path, "rb") as f:
            while block := f.read(1 << 20):
                answer.write(block)
        os.unlink(path)
    answer.flush()


def archive(job):
    number, (title, url, algorithm, want, _) = job
    path = "archive-%d" % number
    digest = hashlib.new(algorithm)
    if not download(url, path, ask["max"]):
        raise Bad("%s: its archive is not there (%s)" % (title, url))
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != want:
        raise Bad("%s: its archive is not the one that the registry has a checksum of" % title)
    return path


room = {"bytes": ask["max"], "files": ask["max"] // 4096, "all": 2 * ask["max"] + (16 << 20)}


def take(what, n):
    room[what] -= n
    if room[what] < 0:
        raise TooLarge("the packages take more than packages.size allows (%d bytes, %d files)" % (ask["max"], ask["max"] // 4096))


def number(field):
    digits = field.strip(b"\0 ") or b"0"
    if not digits.isdigit():  # int takes a sign as well
        raise Bad("its archive is damaged")
    try:
        return int(digits, 8)
    except ValueError:
        raise Bad("its archive is damaged")


def unpack(path, to):
    """Unpacks regular files. Links and devices are left out, as npm does."""
    with gzip.open(path) as f:

        def read(n):
            data = f.read(n)
            if len(data) < n:
                raise EOFError
            return data

        longer = {}
        while True:
            head = f.read(512)
            if len(head) < 512 or head == bytes(512):
                return
            if number(head[148:156]) != sum(head) - sum(head[148:156]) + 8 * 32:
                raise Bad("its archive is damaged")
            kind, size = head[156:157], number(head[124:136])
            if kind in (b"x", b"g", b"L", b"K"):
                if size > MAX_HEADER:
                    raise Bad("its archive has a name of %d bytes" % size)
                take("all", 512 + size)
                data = read((size + 511) // 512 * 512)[:size]
                if kind == b"L":
                    longer["path"] = data.rstrip(b"\0")
                while kind == b"x" and data:
                    n, _, rest = data.partition(b" ")
                    if not n.isdigit() or len(n) > 8 or not len(n) < int(n) <= len(data):
                        raise Bad("its archive is damaged")
                    key, _, value = data[len(n) + 1 : int(n) - 1].partition(b"=")
                    longer[key.decode("latin-1")] = value
                    data = data[int(n) :]
                continue
            name = longer.get("path") or (head[345:500].rstrip(b"\0") + b"/" if head[257:263] == b"ustar\0" and head[345] else b"") + head[:100].split(b"\0")[0]
            if "size" in longer:
                if not longer["size"].isdigit() or len(longer["size"]) > 15:
                    raise Bad("its archive is damaged")
                size = int(longer["size"])
            longer = {}
            take("all", 512 + size)
            out = None
            if kind in (b"0", b"\0", b"7") and not name.endswith(b"/"):
                out = create(to, name, number(head[100:108]) & 0o111)
            if out:
                take("bytes", size)
                take("files", 1)
            rest = (size + 511) // 512 * 512
            while rest:
                block = read(min(rest, 1 << 18))
                if out:
                    out.write(block[: max(0, size)])
                size, rest = size - len(block), rest - len(block)
            if out:
                out.close()


def create(to, name, executable):
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise Bad("its archive has the name %.200r" % name)
    parts = text.split("/")
    if text.startswith("/") or ".." in parts or "\0" in text or "\\" in text:
        raise Bad("its archive has the name %.200r, which leads out of its directory" % text)
    parts = [p for p in parts if p not in ("", ".")][1:]  # the first one is usually "package"
    if not parts:
        return None
    # The kernel's bounds, less the directories that are above. makedirs calls itself for each part.
    if len(name) > 2000 or len(parts) > 100 or max(map(len, name.split(b"/"))) > 255:
        raise Bad("its archive has the name %.200r, which is too long" % text)
    path = os.path.join(to, *parts)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        out = open(path, "wb")
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise Bad("its archive has %.200r as a file and as a directory" % text)
    os.chmod(out.fileno(), 0o755 if executable else 0o644)
    return out


def install(archives, found, notes):
    for job, path in zip(archives, pool.map(archive, enumerate(archives))):
        title, to = job[0], os.path.join("out", job[4])
        os.makedirs(to, exist_ok=True)
        try:
            unpack(path, to)
        except Bad as e:
            raise Bad("%s: %s" % (title, e))
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise Bad("%s: its archive is damaged" % title)
        os.unlink(path)
    deliver(found, notes)


pool = concurrent.futures.ThreadPoolExecutor(8)
machines = {"x86_64": "x64", "aarch64": "arm64", "armv7l": "arm", "i686": "ia32", "ppc64le": "ppc64"}
libc = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
answer.write(json.dumps({"cpu": machines.get(platform.machine(), platform.machine()), "libc": libc}).encode() + b"\n")
answer.flush()
try:
    while True:
        asked = json.loads(lines.get())
        if "documents" in asked:
            send_documents(asked["documents"])
        else:
            os.mkdir("out")
            install(asked["archives"], asked["packages"], asked["notes"])
except Unreachable as e:
    fail("unreachable", str(e))
except Bad as e:
    fail("failed", str(e))
except TooLarge as e:
    fail("size", str(e))
except OSError as e:
    if e.errno != errno.ENOSPC:
        traceback.print_exc()
        os._exit(1)
    fail("size", "the packages take more than the %d bytes that packages.size allows" % ask["max"])
except Exception:  # a bug in this program
    traceback.print_exc()
    os._exit(1)
