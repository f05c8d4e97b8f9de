"""The parts of the program: sources, or what this Python has compiled of them in an earlier sandbox of the same kind."""

import _frozen_importlib_external
import marshal
import zlib

MAGIC = _frozen_importlib_external.MAGIC_NUMBER  # of the bytecode of this version of Python


def parts_of(packed):
    """Returns the parts in sources that package runner has packed, by name."""
    p = zlib.decompress(packed).decode().split("\0")
    return dict(zip(p[::2], p[1::2]))


def part_of(parts, name):
    """Returns the code of a part of Python, whose tracebacks know it by its name, and the text of another part."""
    part = parts[name]
    if type(part) is bytes:
        return marshal.loads(zlib.decompress(part[len(MAGIC) :]))
    return compile(part, "<execbroker %s>" % name, "exec") if name.endswith(".py") else part


def compiled(parts):
    """Compiles parts, and returns what the supervisors of further sandboxes are started and set up with."""
    for name in parts:
        parts[name] = MAGIC + zlib.compress(marshal.dumps(part_of(parts, name)))
    rest = {name: part for name, part in parts.items() if name != "runner.py"}
    return {"runner": parts["runner.py"], "parts": pack(rest)}


def unpacked(packed):
    """Returns the compiled parts, each of which is decompressed when it is wanted. There are none if another version has compiled them."""
    parts = unpack(packed) if packed else {}
    return parts if all(part.startswith(MAGIC) for part in parts.values()) else {}
