"""The frames of package wire, for all Python processes of the runner. The files of the supervisor are joined to one, in the order
that package runner names: what one uses of another needs no import."""

import struct

VERSION = 1
HELLO, PING, PONG, BYE, OPEN, DATA, CREDIT, STOP, STARTED, OUTPUT, DONE, FAIL = range(1, 13)
MORE, END = 1, 2  # flags
CONTENTS, STDOUT, STDERR, ENTRIES = range(4)  # channels

WINDOW = 1 << 20  # of a stream
MAX_PAYLOAD = 1 << 20
CHUNK = 1 << 18  # of one read

HEAD = struct.Struct(">BBHII")
U32 = struct.Struct(">I")
I64 = struct.Struct(">q")


class Malformed(Exception):
    """What a peer sent is not what the protocol allows."""


def frame(kind, stream=0, payload=b"", flags=0, channel=0):
    return HEAD.pack(kind, flags, channel, stream, len(payload)) + payload


def pieces(kind, stream, payload):
    """Yields the flags and payloads of the frames for a payload of any length."""
    while len(payload) > MAX_PAYLOAD:
        yield MORE, payload[:MAX_PAYLOAD]
        payload = payload[MAX_PAYLOAD:]
    yield 0, payload


def parse(buf):
    """Takes the complete frames off a bytearray and yields (kind, flags, channel, stream, payload)."""
    i = 0
    try:
        while len(buf) - i >= HEAD.size:
            kind, flags, channel, stream, n = HEAD.unpack_from(buf, i)
            if not HELLO <= kind <= FAIL or flags > 3 or channel > 3 or n > MAX_PAYLOAD or (kind <= BYE) != (stream == 0):
                raise Malformed("not a frame")
            start = i + HEAD.size
            if len(buf) < start + n:
                break
            i = start + n
            yield kind, flags, channel, stream, bytes(memoryview(buf)[start:i])
    finally:
        del buf[:i]


def pack(value):
    out = []
    _pack(out.append, value)
    return b"".join(out)


def _pack(put, v):
    if v is None:
        put(b"n")
    elif v is True or v is False:
        put(b"t" if v else b"f")
    elif isinstance(v, int):
        put(b"i" + I64.pack(v))
    elif isinstance(v, (bytes, str)):
        if isinstance(v, str):
            # The surrogates of a file name become its bytes again. Others stand for nothing.
            try:
                v = v.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                v = v.encode("utf-8", "replace")
        put(b"s" + U32.pack(len(v)))
        put(v)
    elif isinstance(v, dict):
        put(b"m" + U32.pack(len(v)))
        for k, x in v.items():
            _pack(put, k)
            _pack(put, x)
    else:
        put(b"l" + U32.pack(len(v)))
        for x in v:
            _pack(put, x)


def unpack(data):
    """Returns the dict that data encodes. Keys are text, all other text is bytes."""
    try:
        v, end = _unpack(data, 0, 8)
    except (IndexError, struct.error):
        raise Malformed("cut short") from None
    if type(v) is not dict or end != len(data):
        raise Malformed("want one map")
    return v


def _unpack(b, i, depth):
    tag = b[i : i + 1]
    i += 1
    if tag == b"s":
        n = U32.unpack_from(b, i)[0]
        i += 4
        if i + n > len(b):
            raise Malformed("cut short")
        return b[i : i + n], i + n
    if tag == b"i":
        return I64.unpack_from(b, i)[0], i + 8
    if tag in (b"n", b"t", b"f"):
        return {b"n": None, b"t": True, b"f": False}[tag], i
    if tag not in (b"l", b"m") or depth <= 0:
        raise Malformed("bad value")
    n = U32.unpack_from(b, i)[0]
    i += 4
    if tag == b"l":
        items = []
        for _ in range(n):
            x, i = _unpack(b, i, depth - 1)
            items.append(x)
        return items, i
    fields = {}
    for _ in range(n):
        k, i = _unpack(b, i, 0)
        if type(k) is not bytes:
            raise Malformed("a key is not text")
        fields[k.decode("utf-8", "surrogateescape")], i = _unpack(b, i, depth - 1)
    return fields, i
