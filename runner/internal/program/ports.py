"""Connections to servers in the sandbox. It travels over the connection, to sandboxes whose creator has asked for them."""

import errno
import os
import select
from _collections import deque

CONNECT_SECONDS = 10
LISTENING = b"0A"  # the state of a socket in the tables of the kernel
TABLES = "/proc/net/tcp", "/proc/net/tcp6"


def listening(users):
    """Returns the ports at which users listen. It is called before there is user code, so that the tables are short."""
    ports = set()
    for name in TABLES:
        try:
            with open(name, "rb") as f:
                lines = f.read().splitlines()[1:]
        except FileNotFoundError:
            continue  # a kernel without that family
        except OSError as e:
            raise Refused("unsupported", "%s: %s: it says which ports are not the sandbox's" % (name, e.strerror)) from None
        for fields in map(bytes.split, lines):
            if fields[3] == LISTENING and int(fields[7]) in users:
                ports.add(int(fields[1].rpartition(b":")[2], 16))
    return ports


class Forward(Task):
    """A connection to a port."""

    def __init__(self, sup, holder, stream, port):
        super().__init__(holder, stream)
        self.sup, self.port, self.left = sup, port, [(_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1")]
        self.fd, self.connected, self.over = -1, False, False
        self.credit, self.queue = WINDOW, deque()
        self.last, self.told = False, False  # nothing follows from the holder; the holder knows that nothing follows from the server
        self.shut = False  # and the server knows the former
        self.timer = sup.after(CONNECT_SECONDS, lambda: self.fail("no-server", "it does not take the connection"))
        self.connect()

    def connect(self):
        """Tries the next address."""
        if self.over:
            return
        self.close()
        if not self.left:
            self.fail("no-server", "nothing listens at port %d" % self.port)
            return
        family, address = self.left.pop(0)
        try:
            s = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
        except OSError as e:
            if e.errno == errno.EAFNOSUPPORT:
                self.sup.soon(self.connect)
            else:
                self.fail("exhausted", e.strerror)
            return
        try:
            code = s.connect_ex((address, self.port))
            s.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        except OSError as e:
            code = e.errno
        self.fd = s.detach()  # an object would close what is another's descriptor in a forked process
        if code in (0, errno.EINPROGRESS):
            self.sup.watch(self.fd, select.EPOLLOUT, self.answered)
        else:
            self.sup.soon(self.connect)

    def answered(self):
        if not self.ask(lambda s: s.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR) == 0 and s.getsockname() != s.getpeername()):
            self.connect()  # nobody listens; or it has met itself, which happens at a free port
            return
        self.sup.cancel(self.timer)
        self.connected = True
        self.sup.used()
        self.holder.send_map(STARTED, self.stream, {})
        self.write()

    def ask(self, question):
        """Returns what the socket answers, or False."""
        s = _socket.socket(fileno=self.fd)
        try:
            return question(s)
        except OSError:
            return False
        finally:
            s.detach()

    # What the holder wants.

    def data(self, payload, end):
        self.sup.used()
        self.last = self.last or end
        if payload:
            self.queue.append(payload)
        if self.connected:
            self.write()

    def granted(self, n):
        self.credit += n
        if self.connected:
            self.watch()

    def stop(self, reason):
        self.end()

    def orphaned(self):
        self.over = True
        self.close()

    # What the server does.

    def room(self):
        """Returns how much can be read now."""
        return 0 if self.told or self.holder.full() else max(self.credit, 0)

    def watch(self):
        if not self.over:
            self.sup.watch(self.fd, (select.EPOLLIN if self.room() else 0) | (select.EPOLLOUT if self.queue else 0), self.ready)

    def ready(self):
        if self.queue:
            self.write()
        if not self.over and self.room():
            self.read()
        self.watch()

    def read(self):
        try:
            data = os.read(self.fd, min(self.room(), CHUNK))
        except BlockingIOError:
            return
        except OSError:
            self.end(reset=1)
            return
        self.told = not data
        self.credit -= len(data)
        self.holder.send(DATA, self.stream, data, 0 if data else END, STDOUT)
        self.settle()

    def write(self):
        try:
            while self.queue:
                n = os.write(self.fd, self.queue[0])
                self.consumed(n)
                if n < len(self.queue[0]):
                    self.queue[0] = self.queue[0][n:]
                else:
                    self.queue.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.end(reset=1)
            return
        if self.last and not self.queue and not self.shut:
            self.shut = True
            self.ask(lambda s: s.shutdown(_socket.SHUT_WR))
        self.settle()

    def settle(self):
        if self.told and self.shut:
            self.end()
        else:
            self.watch()

    # Ends.

    def end(self, **fields):
        if not self.over:
            self.over = True
            self.close()
            self.reply(DONE, fields)

    def fail(self, kind, message):
        if not self.over:
            self.over = True
            self.close()
            super().fail(kind, message)

    def close(self):
        if self.over:
            self.sup.cancel(self.timer)
            self.queue.clear()
        if self.fd >= 0:
            self.sup.unwatch(self.fd)
            close(self.fd)
            self.fd = -1


def forwards(sup):
    """Returns what makes connections. Those to ports of root have nothing to do with what runs in the sandbox: they are the runner's own, and
    those of daemons of the provider."""
    closed = listening({0, os.getuid()})

    def forward(holder, stream, port):
        if not 0 < port < 1 << 16:
            raise Refused("invalid", "port %d: want 1 to 65535" % port)
        if port in closed:
            raise Refused("denied", "port %d is the sandbox's own" % port)
        Forward(sup, holder, stream, port)

    return forward
