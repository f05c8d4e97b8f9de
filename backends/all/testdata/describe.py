# Prints a line of JSON for each name: what its value is, in words that are the same in every Python.
# An object that was met before is its number, so that the words tell what is shared, also between names.
import collections
import enum
import hashlib
import json
import re
import types

seen, kept = {}, []


def number(v):
    "Returns the number of an object that was met before, or None."
    if id(v) in seen:
        return seen[id(v)]
    seen[id(v)] = len(seen)
    kept.append(v)  # so that its id stays its own
    return None


def attributes(v):
    found = dict(getattr(v, "__dict__", {}))
    for c in type(v).__mro__:
        slots = c.__dict__.get("__slots__", ())
        for s in (slots,) if isinstance(slots, str) else slots:
            if s not in ("__dict__", "__weakref__") and hasattr(v, s):
                found[s] = getattr(v, s)
    return sorted(found.items())


def of_class(c):
    data = sorted(
        (k, v) for k, v in vars(c).items()
        if not k.startswith("_") and not callable(v) and not isinstance(v, (classmethod, staticmethod, property))
        and not hasattr(type(v), "__get__"))
    return ["class", c.__qualname__, [b.__name__ for b in c.__mro__], sorted(k for k, v in vars(c).items() if callable(v) and not k.startswith("__")), [[k, describe(v)] for k, v in data]]


def describe(v):
    t = type(v)
    if v is None or t in (bool, int, float, complex, str, bytes, range, slice, type(Ellipsis)):
        text = ascii(v)
        return [t.__name__, text if len(text) < 200 else hashlib.sha256(text.encode()).hexdigest()]
    if t is tuple and not v:
        return ["tuple", []]
    if isinstance(v, types.ModuleType):
        return ["module", v.__name__]
    if isinstance(v, types.BuiltinFunctionType):
        return ["builtin", v.__qualname__]
    if isinstance(v, type) and v.__module__ not in ("__main__", "checkpoint"):
        return ["class", v.__module__, v.__qualname__]
    if isinstance(v, types.FunctionType) and v.__module__ != "__main__":
        return ["function", v.__module__, v.__qualname__]
    n = number(v)
    if n is not None:
        return n
    if isinstance(v, enum.Enum):
        return [t.__qualname__, v.name, describe(v.value)]
    if isinstance(v, type):
        return of_class(v)
    if isinstance(v, types.FunctionType):
        code = v.__code__
        return ["function", v.__qualname__, code.co_varnames, sorted(code.co_names), describe(v.__defaults__), describe(v.__kwdefaults__), [[k, describe(x)] for k, x in sorted(vars(v).items()) if k != "__wrapped__"]]
    more = [] if t.__module__ != "__main__" else [[k, describe(x)] for k, x in attributes(v)]
    if isinstance(v, BaseException):
        return [t.__qualname__, describe(v.args), [[k, describe(x)] for k, x in attributes(v)]]
    if isinstance(v, (list, tuple, collections.deque)):
        return [t.__qualname__, [describe(x) for x in v], more]
    if isinstance(v, (set, frozenset)):
        return [t.__qualname__, sorted(re.sub(r" at 0x\w+", "", ascii(x)) for x in v), more]
    if isinstance(v, (dict, collections.abc.Mapping)):
        return [t.__qualname__, [[describe(k), describe(x)] for k, x in v.items()], more]
    if t.__module__ == "__main__":
        return [t.__qualname__, more]
    if hasattr(v, "tobytes"):
        return [t.__qualname__, hashlib.sha256(v.tobytes()).hexdigest()]
    return [t.__qualname__, re.sub(r" at 0x\w+", "", ascii(v))]


for name in names:
    v = namespace.get(name, describe)
    print(json.dumps(["absent"] if v is describe else describe(v)))
