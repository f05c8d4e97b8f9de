"""Restores the state of an interpreter from a file as make.py writes it, and writes what could not be restored.

Loading pickles calls code of the user, as a cell does. If it is interrupted, the interpreter has its names of before.
"""

import sys

_path, sys.path = sys.path, [p for p in sys.path if not (p + "/").startswith(workdir + "/") and p]
try:  # modules of the standard library, whatever files the user has
    import importlib
    import io
    import linecache
    import os
    import pickle
    import pickletools
    from json import dumps, loads
finally:
    sys.path = _path

_getattr, _len = getattr, len


class Missing(Exception):
    pass


def _why(e):
    if type(e) is Missing:
        return str(e)
    try:
        return ("%s: %s" % (type(e).__name__, str(e).split("\n")[0]))[:300]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "an exception that cannot be shown"


class Loader(pickle.Unpickler):
    """Loads pickles of one pickler."""

    def __init__(self, file):
        super().__init__(file)
        self.file, self.primer = file, {}

    def persistent_load(self, number):
        if number not in self.primer:
            raise pickle.UnpicklingError("a value outside of the archive")
        return self.primer[number]

    def prime(self, memo):
        """Fills the memo by a pickle: setting it does not work in all versions of Python."""
        self.primer, file = memo, self.file
        load = b"".join(b"J" + k.to_bytes(4, "little") + b"Q\x940" for k in range(_len(memo)))
        at = file.tell()
        end = file.seek(0, 2)
        file.write(b"\x80\x05" + load + b"N.")
        file.seek(end)
        self.load()
        file.truncate(end)
        file.seek(at)
        self.primer = {}


class Restorer:
    def __init__(self, main, plan, data):
        self.main, self.plan, self.data = main, plan, data
        self.omitted = []
        # Pickles of later steps refer to objects of earlier ones by their places in a memo. After the
        # first failure: how many places are taken, and those that nothing may refer to.
        self.taken, self.bad = None, set()

    def omit(self, name, kind, reason):
        self.omitted.append({"name": name, "kind": kind, "reason": "".join(c if c.isprintable() else "?" for c in reason[:300])})

    def links(self):
        for link in self.plan["links"]:
            try:
                os.symlink(link["target"], os.path.join(workdir, link["name"]))
            except OSError as e:
                self.omit(link["name"], "link", _why(e))

    def imports(self):
        lines = []
        for i in self.plan["imports"]:
            module, attr, name = i["module"], i.get("attr", ""), i.get("name", "")
            try:
                value = importlib.import_module(module)
                if attr:
                    value = _getattr(value, attr)
                if name:
                    self.main[name] = value
            except KeyboardInterrupt:
                raise
            except BaseException as e:
                self.omit(name or module, "import", _why(e))
                continue
            lines.append("from %s import %s as %s\n" % (module, attr, name) if attr else "import %s\n" % module)
        self.publish("<checkpoint>", lines)  # a checkpoint of this conversation needs the sources too

    def publish(self, file, lines):
        linecache.cache[file] = sum(map(_len, lines)), None, lines, file

    def steps(self):
        file = io.BytesIO(self.data)
        loader, at = Loader(file), 0
        for number, step in enumerate(self.plan["steps"]):
            name, op, end = step["name"], step["op"], at + step.get("size", 0)
            memo = None
            try:
                if op == "define":
                    self.define("<checkpoint %d>" % number, step["source"])
                    continue
                if self.bad:
                    memo = self.scan(at, end)
                file.seek(at)
                value = loader.load()
                if op == "value":
                    self.main[name] = value
                else:
                    self.apply(name, value)
            except KeyboardInterrupt:
                raise
            except BaseException as e:
                self.omit("state of " + name if op == "state" else name, step["kind"], _why(e))
                if op == "define":
                    self.main.pop(name, None)
                else:
                    loader, memo = self.without(loader, file, at, end), None
            if memo is not None:
                self.taken += memo
            at = end

    def scan(self, at, end):
        """Returns how many places in the memo a pickle takes."""
        n, bad = 0, False
        for op, arg, _ in pickletools.genops(self.data[at:end]):
            n += op.name == "MEMOIZE"
            bad = bad or op.name in ("GET", "BINGET", "LONG_BINGET") and arg in self.bad
        if bad:
            raise Missing("it shares an object with something that was not restored")
        return n

    def without(self, loader, file, at, end):
        """Returns a loader for what follows a pickle that failed. What this one would have memoized is
        taken by nothing, so that the places of the others stay the same."""
        bad, self.bad = self.bad, set()
        if self.taken is None:
            self.taken, start = 0, 0
            for step in self.plan["steps"]:
                if start < at and "size" in step:
                    self.taken += self.scan(start, start + step["size"])
                    start += step["size"]
        n = self.scan(at, end)
        memo = {k: v for k, v in loader.memo.copy().items() if k < self.taken}
        memo.update((k, None) for k in range(self.taken, self.taken + n))
        self.bad = bad | set(range(self.taken, self.taken + n))
        self.taken += n
        loader = Loader(file)
        loader.prime(memo)
        return loader

    def define(self, file, source):
        self.publish(file, io.StringIO(source, None).readlines())
        exec(compile(source, file, "exec", 0, True), self.main)

    def apply(self, name, state):
        target = self.main[name]
        if not isinstance(target, type):
            target.__defaults__, target.__kwdefaults__ = state["defaults"], state["kwdefaults"]
            target.__dict__.update(state["dict"])
            return
        for k, v in state.items():
            type.__setattr__(target, k, v)


def _restore(args):
    module = sys.modules["__main__"]
    main = module.__dict__
    with open(args["path"], "rb") as f:
        plan = loads(f.readline())
        data = f.read()
    names = dict(main)
    r = Restorer(main, plan, data)
    try:
        r.links()
        r.imports()
        r.steps()
        if args["all"] and r.omitted:
            main.clear()
            main.update(names)
    except BaseException:
        main.clear()
        main.update(names)
        raise
    try:
        os.chdir(os.path.join(workdir, plan["dir"]))
    except OSError as e:
        r.omit("os.getcwd()", "directory", _why(e))
    with open(args["path"] + ".out", "xb") as f:
        f.write(dumps({"omitted": r.omitted}).encode() + b"\n")


_restore(loads(args))
