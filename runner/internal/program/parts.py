"""The parts of the program: sources, or what this Python has compiled of them in an earlier sandbox of the same kind."""

import _frozen_importlib_external
import marshal
import zlib

MAGIC = _frozen_importlib_external.MAGIC_NUMBER  # of the bytecode of this version of Python


def parts_of(packed):
    """Returns the parts in sources that package runner has packed, by name."""
    p = zlib.decompress(packed).decode().split("\0")
    return dict(zip(p[::2], p[1::2]))


def code_of(parts, name):
    """Returns the code of a part. Tracebacks know it by its name."""
    part = parts[name]
    return marshal.loads(part) if type(part) is bytes else compile(part, "<execbroker %s>" % name, "exec")


def compiled(parts):
    """Compiles parts, and returns what the supervisors of further sandboxes are started and set up with."""
    for name in parts:
        if name.endswith(".py") and type(parts[name]) is str:
            parts[name] = marshal.dumps(code_of(parts, name))
    rest = {name: part for name, part in parts.items() if name != "runner.py"}
    return {"runner": _packed(parts["runner.py"]), "parts": _packed(marshal.dumps(rest))}


def _packed(data):
    return MAGIC + zlib.compress(data)


def unpacked(packed):
    """Returns the compiled parts. There are none if another version of Python has compiled them."""
    return marshal.loads(zlib.decompress(packed[len(MAGIC) :])) if packed.startswith(MAGIC) else {}
