"""HTTP for machines that are reached over a network. A holder's connection is a link: two streams of bytes that outlive the TCP connections
which carry them. Each side keeps what the other has not acknowledged, and positions say what follows, so that after an interruption
nothing is lost and nothing comes twice.

    GET    /v1/ready                   200 when requests are answered
    POST   /v1/links/ID?at=N&ack=M     bytes from position N of the holder's stream on; those before M of the other have arrived
    GET    /v1/links/ID?from=M         the other stream from M on: records of a length (4 bytes) and so many bytes; none: a heartbeat
    DELETE /v1/links/ID                ends the link

Position 0 makes a link of an ID that was never used.
"""

import os
import select
from _collections import deque

from _operator import _compare_digest

for _name in ("_sha2", "_sha256", "hashlib"):  # hashlib loads a library of its own; _sha256 is _sha2 from Python 3.12 on
    try:
        sha256 = __import__(_name).sha256
        break
    except ImportError:
        pass

MAX_HEAD = 16 << 10
MAX_BODY = 2 << 20
MAX_CONNECTIONS = 256
MAX_REPLAY = 4 << 20  # what a link keeps until it is acknowledged; then its holder waits
MAX_UNSENT = 1 << 20
HEARTBEAT_SECONDS = 1  # a holder that hears nothing for longer asks the provider
LINGER_SECONDS = 60  # without a connection, until a link is given up
IDLE_SECONDS = 120  # of a connection between requests
USER_TIMEOUT = 18  # TCP_USER_TIMEOUT

STATUS = {200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 404: b"Not Found", 405: b"Method Not Allowed", 409: b"Conflict",
          410: b"Gone", 411: b"Length Required", 413: b"Content Too Large", 431: b"Header Fields Too Large", 503: b"Service Unavailable"}  # fmt: skip


def listen_tcp(port):
    """Returns a socket for both versions of IP, or for the one that there is."""
    for family, address in ((_socket.AF_INET6, ("::", port)), (_socket.AF_INET, ("0.0.0.0", port))):
        try:
            s = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
            s.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            if family == _socket.AF_INET6:
                s.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
            s.bind(address)
            s.listen(64)
            return s.detach()
        except OSError as e:
            error = e
    raise SystemExit("execbroker: port %d: %s" % (port, error))


class Server:
    def __init__(self, sup, port, digest, boot):
        self.sup, self.digest = sup, digest
        self.links, self.dead, self.connections = {}, deque(maxlen=1000), {}
        self.fd = listen_tcp(port)
        sup.watch(self.fd, select.EPOLLIN, self.accept)
        sup.after(boot, lambda: sup.config is None and sup.end("idle"))
        self.beat()

    def accept(self):
        s = _socket.socket(fileno=self.fd)
        try:
            fd, _ = s._accept()
        except OSError:
            return
        finally:
            s.detach()
        c = _socket.socket(fileno=fd)
        try:
            c.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            c.setsockopt(_socket.IPPROTO_TCP, USER_TIMEOUT, 1000 * LINGER_SECONDS)
        except OSError:
            pass  # it has gone
        finally:
            c.detach()
        if len(self.connections) >= MAX_CONNECTIONS:
            # Code may connect as well, where it has a network. It cannot keep those out who know the secret.
            victim = next((c for c in self.connections if not c.known), None)
            if victim is None:
                close(fd)
                return
            victim.shut()
        self.connections[Connection(self, fd)] = True

    def admits(self, authorization):
        """Reports whether a request comes from a holder. What is known here of the secret of holders does not suffice to make one."""
        scheme, _, secret = authorization.partition(b" ")
        return scheme == b"Bearer" and _compare_digest(sha256(secret).hexdigest(), self.digest)

    def beat(self):
        for link in list(self.links.values()):
            if link.stream is not None and not link.stream.queue:
                link.stream.chunk(b"\0\0\0\0")
        self.sup.after(HEARTBEAT_SECONDS, self.beat)

    def busy(self):
        """Reports whether last words are on their way."""
        # A link that has not ended has not even read them, and nobody may have asked for its stream yet.
        return any(link.stream is not None or link.kept or not link.ended for link in self.links.values()) or any(c.queue for c in self.connections)

    def link(self, name, position):
        """Returns a link, or a status."""
        link = self.links.get(name)
        if link is not None:
            return link, 0
        if position != 0 or name in self.dead:
            return None, 410
        if len(self.sup.holders) >= MAX_HOLDERS or self.sup.quit is not None:
            return None, 503
        link = self.links[name] = Link(self, name)
        return link, 0


class Connection:
    """A TCP connection of a client."""

    def __init__(self, server, fd):
        self.server, self.sup, self.fd = server, server.sup, fd
        self.inbuf, self.queue, self.queued = bytearray(), deque(), 0
        self.head = self.link = None  # the request whose body is awaited, and the link whose stream goes out here
        self.known = self.waiting = self.closed = self.leaving = False
        self.timer = None
        os.set_blocking(fd, False)
        self.rearm()
        self.watch()

    def rearm(self):
        self.sup.cancel(self.timer)
        self.timer = self.sup.after(IDLE_SECONDS if self.known else HELLO_SECONDS, self.shut)

    def watch(self):
        # Behind a request that is under way nothing is read, but that the client goes is noticed.
        r = select.EPOLLRDHUP if self.waiting else select.EPOLLIN
        self.sup.watch(self.fd, r | (select.EPOLLOUT if self.queue else 0), self.ready)

    def ready(self):
        self.flush()
        if self.closed:
            return
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self.link is not None:  # one that takes a stream has nothing more to say
            self.shut()
            return
        self.inbuf += data
        self.step()

    def step(self):
        """Answers what has arrived in full."""
        while not self.closed and not self.waiting and not self.leaving:
            if self.head is None:
                end = self.inbuf.find(b"\r\n\r\n", 0, MAX_HEAD)
                if end < 0:
                    if len(self.inbuf) >= MAX_HEAD:
                        self.reply(431, True)
                    return
                head = bytes(self.inbuf[:end])
                del self.inbuf[: end + 4]
                self.head = self.parse(head)
                if self.head is None:
                    return
            method, target, query, length = self.head
            if len(self.inbuf) < length:
                return
            body = bytes(memoryview(self.inbuf)[:length])
            del self.inbuf[:length]
            self.head = None
            self.rearm()
            self.handle(method, target, query, body)

    def parse(self, head):
        """Returns a request, or answers it: what is not allowed is not even read."""
        line, *rest = head.split(b"\r\n")
        fields = {}
        for field in rest:
            name, _, value = field.partition(b":")
            fields[name.strip().lower()] = value.strip()
        if not self.server.admits(fields.get(b"authorization", b"")):
            return self.reply(401, True)
        self.known = True
        words = line.split(b" ")
        length = fields.get(b"content-length", b"0")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not length.isdigit() or len(length) > 9:
            return self.reply(400, True)
        if b"transfer-encoding" in fields:
            return self.reply(411, True)
        if int(length) > MAX_BODY:
            return self.reply(413, True)
        target, _, query = words[1].partition(b"?")
        numbers = {}
        for part in query.split(b"&") if query else ():
            key, _, value = part.partition(b"=")
            if not value.isdigit() or len(value) > 18:
                return self.reply(400, True)
            numbers[key] = int(value)
        return words[0], target, numbers, int(length)

    def handle(self, method, target, query, body):
        if target == b"/v1/ready":
            self.reply(200 if method == b"GET" else 405)
            return
        name = target[len(b"/v1/links/") :]
        if not target.startswith(b"/v1/links/") or not name.isalnum() or not 16 <= len(name) <= 64:
            self.reply(404)
        elif method == b"POST" and b"at" in query:
            link, status = self.server.link(name, query[b"at"])
            if link is not None and link.acknowledge(query.get(b"ack", 0)) and link.receive(query[b"at"], body):
                self.waiting = True
                link.answer(self)
            else:
                self.reply(status or 409)
        elif method == b"GET" and b"from" in query:
            link, status = self.server.link(name, query[b"from"])
            if link is not None and link.acknowledge(query[b"from"]):
                self.sup.cancel(self.timer)
                self.put(b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n")
                self.link = link
                link.connect(self, query[b"from"])
                self.flush()
            else:
                self.reply(status or 409)
        elif method == b"DELETE":
            if name in self.server.links:
                self.server.links[name].lost()
            self.reply(200)
        else:
            self.reply(405)

    def reply(self, status, last=False):
        """Answers a request without a body."""
        self.waiting = False
        self.leaving = self.leaving or last
        self.put(b"HTTP/1.1 %d %s\r\nContent-Length: 0\r\n%s\r\n" % (status, STATUS[status], b"Connection: close\r\n" if last else b""))
        self.flush()

    def chunk(self, data):
        self.put(b"%x\r\n%s\r\n" % (len(data), data))
        self.flush()

    def finish(self):
        """Ends the stream."""
        self.link = None
        self.leaving = True
        self.put(b"0\r\n\r\n")
        self.flush()

    def put(self, data):
        self.queue.append(data)
        self.queued += len(data)

    def flush(self):
        while self.queue and not self.closed:
            try:
                n = os.write(self.fd, self.queue[0])
            except BlockingIOError:
                break
            except OSError:
                self.shut()
                return
            self.queued -= n
            if n < len(self.queue[0]):
                self.queue[0] = memoryview(self.queue[0])[n:]
            else:
                self.queue.popleft()
        if self.closed:
            return
        if not self.queue and self.leaving:
            self.shut()
            return
        self.watch()
        if self.link is not None and self.queued < MAX_UNSENT:
            self.link.pump()

    def shut(self):
        if self.closed:
            return
        self.closed = True
        self.sup.cancel(self.timer)
        self.sup.unwatch(self.fd)
        close(self.fd)
        self.queue.clear()
        self.queued = 0
        self.server.connections.pop(self, None)
        link, self.link = self.link, None
        if link is not None:
            link.disconnected(self)


class Link:
    """A holder's connection as HTTP carries it. The holder itself has one end of a pair of sockets."""

    def __init__(self, server, name):
        self.server, self.sup, self.name = server, server.sup, name
        self.fd, theirs = socketpair()
        os.set_blocking(self.fd, False)
        self.got, self.todo = 0, bytearray()  # position in the holder's stream, and what it has not taken
        self.base, self.kept, self.position = 0, bytearray(), 0  # of the other: the first that is kept, what is, and where the stream is
        self.stream, self.waiters = None, []
        self.ended = self.over = False
        self.timer = self.sup.after(LINGER_SECONDS, self.lost)
        Holder(self.sup, theirs, theirs)
        self.watch()

    def watch(self):
        if self.over:
            return
        r = select.EPOLLIN if len(self.kept) < MAX_REPLAY and not self.ended else 0
        self.sup.watch(self.fd, r | (select.EPOLLOUT if self.todo else 0), self.ready)

    def ready(self):
        self.write()
        self.read()

    def read(self):
        while not self.ended and len(self.kept) < MAX_REPLAY:
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:  # the supervisor has said its last word, which waits here for its reader
                self.ended = True
                self.todo.clear()
                self.release()
                break
            self.kept += data
            if len(data) < CHUNK:
                break  # there is no more, and if there is, epoll says so
        self.pump()
        self.watch()

    def write(self):
        try:
            while self.todo and not self.over and not self.ended:
                del self.todo[: os.write(self.fd, memoryview(self.todo)[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.todo.clear()
        if not self.todo or self.ended:
            self.release()
        self.watch()

    def release(self):
        waiters, self.waiters = self.waiters, []
        if self.ended or self.over:
            self.reply(waiters, 410)
        elif waiters:  # in the next turn, after what the holder does with what it has got: code may wait for that
            self.sup.soon(lambda: self.sup.soon(lambda: self.reply(waiters, 200)))

    def reply(self, waiters, status):
        for c in waiters:
            if not c.closed:
                c.reply(status)
                c.step()

    def receive(self, at, body):
        """Takes what is new of the bytes at a position, and reports whether they follow what was taken before."""
        if at > self.got:
            return False
        new = body[self.got - at :]
        self.got += len(new)
        self.todo += new
        return True

    def answer(self, connection):
        """Answers a request when the holder has taken everything."""
        self.waiters.append(connection)
        self.write()
        if connection.waiting:
            connection.watch()

    def acknowledge(self, position):
        if not 0 <= position <= self.base + len(self.kept):
            return False
        if position > self.base:
            del self.kept[: position - self.base]
            self.base = position
            self.watch()
        return True

    def connect(self, connection, position):
        self.sup.cancel(self.timer)
        before, self.stream = self.stream, connection
        if before is not None:
            before.link = None
            before.shut()
        self.position = max(position, self.base)
        self.pump()

    def pump(self):
        while self.stream is not None and not self.stream.closed:
            left = self.base + len(self.kept) - self.position
            if left <= 0:
                if self.ended:
                    stream, self.stream = self.stream, None
                    stream.finish()
                    self.lost()
                return
            if self.stream.queued >= MAX_UNSENT:
                return
            start = self.position - self.base
            piece = bytes(memoryview(self.kept)[start : start + CHUNK])
            self.position += len(piece)
            stream = self.stream
            stream.put(b"%x\r\n%s%s\r\n" % (len(piece) + 4, U32.pack(len(piece)), piece))
            stream.link = None  # its flush is not to come back here
            stream.flush()
            if not stream.closed:
                stream.link = self
                stream.watch()
            elif self.stream is stream:
                self.disconnected(stream)

    def disconnected(self, connection):
        if self.stream is connection:
            self.stream = None
            self.timer = self.sup.after(LINGER_SECONDS, self.lost)

    def lost(self):
        """Nobody will come back."""
        if self.over:
            return
        self.over = True
        self.sup.cancel(self.timer)
        self.sup.unwatch(self.fd)
        close(self.fd)
        self.server.links.pop(self.name, None)
        self.server.dead.append(self.name)
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.link = None
            stream.shut()
        self.release()
