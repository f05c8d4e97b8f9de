"""Connections: to holders, to interpreters and to the file helper."""

import os
import select
import time
from _collections import deque

MAX_QUEUE = 2 << 20  # bytes for a holder that does not read; beyond it, its streams wait
MAX_OPEN = 32 << 20  # a request in several frames
MAX_STREAMS = 1024  # of a holder, open at once
HELLO_SECONDS = 20
HOLD_SECONDS = 0.001  # for which a frame waits that another one mostly follows at once


class Refused(Exception):
    """A request that is not carried out: a kind of error and a message."""


def text(b):
    return b.decode("utf-8", "surrogateescape")


def get(m, key, kind, default=None):
    """Returns a field of a request if it has the right type."""
    v = m.get(key)
    if v is None:
        return default
    if type(v) is not kind:
        raise Refused("invalid", "%s: want %s" % (key, kind.__name__))
    return v


def environment(m, key):
    """Returns a field of a request that is an environment."""
    env = {}
    for k, v in get(m, key, dict, {}).items():
        if type(v) is not bytes or not k or "=" in k or "\0" in k or b"\0" in v:
            raise Refused("invalid", "%s: a name is empty or has '=', or something is not text" % key)
        env[k] = text(v)
    return env


class Peer:
    """A stream of frames in both directions, over descriptors that never block."""

    def __init__(self, sup, rfd, wfd):
        self.sup, self.rfd, self.wfd = sup, rfd, wfd
        self.inbuf, self.queue, self.queued = bytearray(), deque(), 0
        self.paused = self.closed = False
        self.held = None  # the timer of what waits to be sent
        for fd in {rfd, wfd}:
            os.set_blocking(fd, False)
        self.watch()

    def watch(self):
        r = 0 if self.paused else select.EPOLLIN
        w = select.EPOLLOUT if self.queue else 0
        if self.rfd == self.wfd:
            self.sup.watch(self.rfd, r | w, self.ready)
        else:
            self.sup.watch(self.rfd, r, self.read)
            self.sup.watch(self.wfd, w, self.flush)

    def ready(self):
        self.flush()
        self.read()

    def read(self):
        if self.paused or self.closed:
            return
        try:
            data = os.read(self.rfd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.inbuf += data
            self.consume()
        else:
            self.lost()

    def consume(self):
        if self.paused or self.closed:
            return
        frames = parse(self.inbuf)
        try:
            for f in frames:
                self.receive(*f)
                if self.paused or self.closed:
                    break
        except Malformed as e:
            self.broken(e)
        finally:
            frames.close()

    def pause(self, on):
        if self.paused != on and not self.closed:
            self.paused = on
            self.watch()
            if not on:
                self.sup.soon(self.consume)  # what has already been read

    def send(self, kind, stream=0, payload=b"", flags=0, channel=0):
        if self.closed:
            return
        self.sup.dirty.add(self)
        head = HEAD.pack(kind, flags, channel, stream, len(payload))
        if len(payload) < 4096:
            self.queue.append(head + payload)
        else:  # not worth a copy
            self.queue.append(head)
            self.queue.append(payload)
        self.queued += len(head) + len(payload)

    def send_map(self, kind, stream, fields):
        for flags, piece in pieces(kind, stream, pack(fields)):
            self.send(kind, stream, piece, flags)

    def hold(self):
        """Lets what is queued wait a moment for what follows, so that who reads it is woken once."""
        self.sup.dirty.discard(self)
        if self.held is None:
            self.held = self.sup.after(HOLD_SECONDS, self.flush)

    def flush(self):
        if self.held is not None:
            self.sup.cancel(self.held)
            self.held = None
        full = self.full()
        while self.queue and not self.closed:
            some = [self.queue[i] for i in range(min(64, len(self.queue)))]
            try:
                n = os.writev(self.wfd, some)
            except BlockingIOError:
                break
            except OSError:
                self.lost()
                return
            self.queued -= n
            while n and n >= len(self.queue[0]):
                n -= len(self.queue.popleft())
            if n:
                self.queue[0] = memoryview(self.queue[0])[n:]
        if not self.closed:
            self.watch()
            if full and not self.full():
                self.drained()

    def full(self):
        return self.queued > MAX_QUEUE

    def drained(self):
        """The queue is short again."""

    def receive(self, kind, flags, channel, stream, payload):
        raise NotImplementedError

    def broken(self, e):
        """The peer has sent what it must not."""
        self.lost()

    def lost(self):
        """The peer is gone."""
        raise NotImplementedError

    def shut(self):
        if not self.closed:
            self.closed = True
            self.sup.dirty.discard(self)
            for fd in {self.rfd, self.wfd}:
                self.sup.unwatch(fd)
                close(fd)
            self.queue.clear()
            self.queued = 0


class Holder(Peer):
    """The connection of a client."""

    def __init__(self, sup, rfd, wfd, link=-1):
        self.fence, self.greeted, self.leaving, self.link = 0, False, False, link
        self.streams, self.parts = {}, {}
        self.files, self.waiting = set(), deque()  # file operations under way, and those that are not yet
        super().__init__(sup, rfd, wfd)
        sup.holders.add(self)
        if link >= 0:
            # The bridge that brought the descriptors ends with this connection, and this one with it.
            sup.watch(link, select.EPOLLIN, self.lost)
        sup.after(HELLO_SECONDS, lambda: self.greeted or self.lost())

    def receive(self, kind, flags, channel, stream, payload):
        if not self.greeted:
            if kind == PING:  # of somebody who only wants to know whether there is a holder
                self.send(PONG, 0, int((time.monotonic() - self.sup.contact) * 1e9).to_bytes(8, "big"))
                return
            if kind != HELLO:
                raise Malformed("want hello")
            m = unpack(payload)
            self.greeted = True
            self.sup.greet(self, m)
            return
        self.sup.contact = time.monotonic()
        task = self.streams.get(stream)  # None: it has ended while this was on its way
        if kind == PING:
            self.send(PONG, 0, payload)
        elif kind == OPEN:
            self.open(stream, flags, payload)
        elif kind == DATA:
            if task is not None:
                task.granted_in -= len(payload)
                if task.granted_in < 0:
                    raise Malformed("more than was granted")
                task.data(payload, bool(flags & END))
        elif kind == CREDIT and len(payload) == 4:
            if task is not None:
                task.granted(U32.unpack(payload)[0])
        elif kind == STOP:
            if task is not None:
                task.stop("canceled")
        else:
            raise Malformed("unexpected frame")

    def open(self, stream, flags, payload):
        part = self.parts.pop(stream, b"") + payload
        if flags & MORE:
            self.parts[stream] = part
            if sum(map(len, self.parts.values())) > MAX_OPEN:
                raise Malformed("request too large")
            return
        if stream in self.streams:
            raise Malformed("stream is open")
        m = unpack(part)
        try:
            if len(self.streams) >= MAX_STREAMS:
                raise Refused("exhausted", "more than %d requests at once" % MAX_STREAMS)
            self.sup.request(self, stream, m)
        except Refused as e:
            self.fail(stream, *e.args)
        except OSError as e:  # out of descriptors
            self.streams.pop(stream, None)
            self.fail(stream, "exhausted", e.strerror)

    def fail(self, stream, kind, message):
        self.send_map(FAIL, stream, {"kind": kind, "message": message})

    def drained(self):
        for task in list(self.streams.values()):
            task.granted(0)

    def bye(self, reason, message=""):
        """Ends the connection. A holder that does not read has two seconds to hear why."""
        # What it asks for on other streams has not been begun, and will not be.
        open_streams = list(self.streams)
        self.orphan()
        self.pause(True)
        self.send_map(BYE, 0, {"reason": reason, "message": message, "streams": open_streams})
        self.leaving = True
        self.sup.after(2, self.lost)

    def flush(self):
        super().flush()
        if self.leaving and not self.queue:
            self.lost()

    def lost(self):
        if self.closed:
            return
        self.shut()
        if self.link >= 0:
            self.sup.unwatch(self.link)
            close(self.link)
        self.sup.holders.discard(self)
        self.orphan()

    def orphan(self):
        for task in list(self.streams.values()):
            task.orphaned()
        self.streams.clear()


class Task:
    """What a stream of a holder is about."""

    def __init__(self, holder, stream):
        self.holder, self.stream = holder, stream
        self.granted_in = WINDOW
        holder.streams[stream] = self

    def reply(self, kind, fields):
        """Ends the stream."""
        self.holder.send_map(kind, self.stream, fields)
        self.holder.streams.pop(self.stream, None)

    def fail(self, kind, message):
        """Ends the stream with an error."""
        self.reply(FAIL, {"kind": kind, "message": message})

    def consumed(self, n):
        if n:
            self.granted_in += n
            self.holder.send(CREDIT, self.stream, U32.pack(n))

    def data(self, payload, end):
        """The holder has sent data."""

    def granted(self, n):
        """The holder takes n bytes more, or its queue is short again."""

    def stop(self, reason):
        """The holder wants it to end."""

    def orphaned(self):
        """The holder is gone."""
