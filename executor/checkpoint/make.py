"""Writes the state of the interpreter to a file: a line of JSON, and then one pickle for each step that has a size.

It runs in the interpreter whose state it writes, with names of its own. Pickling calls code of the user, which may do anything:
what that replaces in the interpreter is put back afterwards, as far as it can be seen from here. The reader trusts nothing.
"""

import builtins
import sys

_path, sys.path = sys.path, [p for p in sys.path if not (p + "/").startswith(workdir + "/") and p]
try:  # modules of the standard library, whatever files the user has
    import ast
    import linecache
    import os
    import pickle
    import types
    from json import dumps, loads
finally:
    sys.path = _path

_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
_SYSTEM = {"__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__", "__file__", "__cached__", "__annotate__",
           "__conditional_annotations__", "__warningregistry__"}
_type, _getattr, _isinstance, _len, _list = type, getattr, isinstance, len, list


class Full(Exception):
    pass


class Sink:
    """A file that refuses to grow beyond a number of bytes."""

    def __init__(self, limit):
        self.parts, self.size, self.limit = [], 0, limit

    def write(self, data):
        data = bytes(data)
        self.size += _len(data)
        if self.size > self.limit:
            raise Full
        self.parts.append(data)
        return _len(data)


class Pickler(pickle.Pickler):
    """Notes to which definitions of the conversation a value refers."""

    def __init__(self, sink, defined):
        super().__init__(sink, 5)
        self.defined, self.refs = defined, set()

    def reducer_override(self, obj):
        name = self.defined.get(id(obj))
        if name is not None:
            self.refs.add(name)
            if _type(obj) is types.FunctionType and obj.__name__ == "<lambda>":
                return name
        elif _isinstance(obj, type) and obj.__module__ == "__main__":
            self.refs.add(obj.__qualname__.split(".")[0])  # in a class of the conversation
        return NotImplemented


class Source:
    """A statement that defines a name, and where it stands."""

    def __init__(self, file, lines, node, name, future):
        self.file, self.node, self.name = file, node, name
        marks = [d.lineno for d in _getattr(node, "decorator_list", ())]
        self.line, self.decorated = min(marks + [node.lineno]), bool(marks)
        self.code_line = node.value.lineno if _isinstance(node, ast.Assign) else self.line
        if _isinstance(node, ast.Assign):
            self.text = ast.get_source_segment("".join(lines), node) + "\n"
        else:
            self.text = "".join(lines[self.line - 1 : node.end_lineno])
            if node.col_offset:
                self.text = "if True:\n" + self.text
        if future:
            self.text = "from __future__ import annotations\n" + self.text

    def needs(self):
        """Returns the names that are looked up while the statement is executed."""
        names, rest = set(), [self.node]
        while rest:
            n = rest.pop()
            if _isinstance(n, ast.Name):
                names.add(n.id)
            if _isinstance(n, _FUNCTIONS):
                rest += [n.args, *n.decorator_list] + ([n.returns] if n.returns else [])
            elif _isinstance(n, ast.Lambda):
                rest.append(n.args)
            else:
                rest += ast.iter_child_nodes(n)
        return names - {self.name}


def _statements(body):
    """Yields the statements of a module that are in no function or class."""
    for s in body:
        yield s
        if not _isinstance(s, _FUNCTIONS + (ast.ClassDef,)):
            for field in "body", "orelse", "finalbody":
                yield from _statements(_getattr(s, field, ()))
            for h in _getattr(s, "handlers", ()):
                yield from _statements(h.body)


class Sources:
    """What the cells of the conversation define and import, by name, in order."""

    def __init__(self):
        self.defs, self.imports, self.dotted, self.lost = {}, {}, {}, set()
        future = False
        for file, entry in list(linecache.cache.items()):
            if not _isinstance(file, str) or _len(entry) != 4 or entry[1] is not None:
                continue  # a file on disk
            lines = entry[2]
            try:
                body = ast.parse("".join(lines)).body
            except (SyntaxError, ValueError, RecursionError, MemoryError):  # a cell with the syntax of notebooks, or one that failed
                self.lost.add(file)
                continue
            own = any(_isinstance(n, ast.ImportFrom) and n.module == "__future__" and any(a.name == "annotations" for a in n.names) for n in body)
            future = future or own and not file.startswith("<checkpoint")
            for n in _statements(body):
                if _isinstance(n, ast.ImportFrom) and not n.level and n.module != "__future__":
                    for a in n.names:
                        self.imports[a.asname or a.name] = n.module, a.name
                elif _isinstance(n, ast.Import):
                    for a in n.names:
                        if "." in a.name:
                            self.dotted[a.name] = True
                name = _getattr(n, "name", None)
                if _isinstance(n, ast.Assign) and _len(n.targets) == 1 and _isinstance(n.targets[0], ast.Name) and _isinstance(n.value, (ast.Lambda, ast.Call)):
                    name = n.targets[0].id
                if _isinstance(n, _FUNCTIONS + (ast.ClassDef, ast.Assign)) and name:
                    known = own or future and not file.startswith("<checkpoint")
                    self.defs.setdefault(name, []).append(Source(file, lines, n, name, known))

    def function(self, name, code):
        for s in reversed(self.defs.get(name, ())):
            if s.file == code.co_filename and s.code_line == code.co_firstlineno and not _isinstance(s.node, ast.ClassDef):
                return s
        return None

    def kind(self, name, cls):
        files = {f.__code__.co_filename for f in vars(cls).values() if _isinstance(f, types.FunctionType)}
        files.intersection_update(s.file for s in self.defs.get(name, ()))
        line = vars(cls).get("__firstlineno__")
        for want in ast.ClassDef, ast.Assign:
            for s in reversed(self.defs.get(name, ())):
                if _isinstance(s.node, want) and (not files or s.file in files) and (want is ast.Assign or line is None or line == s.line):
                    return s
        return None


def _name(kind):
    module = _getattr(kind, "__module__", "")
    return kind.__qualname__ if module in ("builtins", "__main__") else "%s.%s" % (module, kind.__qualname__)


def _clean(text):
    return "".join(c if c.isprintable() else "?" for c in text[:300])


def _why(e):
    """Says why something failed. The exception may be the user's."""
    if _type(e) is Full:
        return "it is larger than what is left of the bound of the archive"
    try:
        return ("%s: %s" % (_name(_type(e)), str(e).split("\n")[0]))[:300]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "an exception that cannot be shown"


class Maker:
    def __init__(self, main, limit, keep_out, put_back):
        self.main, self.limit, self.put_back = main, limit, put_back
        self.keep_out = {n: v for n, v in keep_out}
        self.sources = Sources()
        self.imports, self.omitted = [], []
        self.defs, self.values, self.states = {}, {}, {}
        self.sort()
        self.defined = {id(main[n]): n for n in self.defs}
        self.refs = {}
        for table in self.values, self.states:
            for name in list(table):
                self.try_value(table, name)

    def omit(self, name, kind, reason):
        self.omitted.append({"name": _clean(name), "kind": _clean(kind), "reason": _clean(reason)})

    # What is what.

    def sort(self):
        modules = []
        for name, v in self.main.items():
            if name in _SYSTEM:
                continue
            if not _isinstance(name, str) or not 0 < _len(name) <= 200 or not name.isprintable():
                self.omit(ascii(name), _name(_type(v)), "its name cannot be carried")
            elif _type(v) is types.ModuleType:
                modules.append((name, v))
            elif self.imported(name, v):
                self.imports.append({"name": name, "module": self.sources.imports[name][0], "attr": self.sources.imports[name][1]})
            else:
                self.define(name, v)
        for name, v in modules:
            module = v.__name__
            if _isinstance(module, str) and sys.modules.get(module) is v and module != "__main__":
                self.imports.append({"name": name, "module": module})
                self.imports += [{"module": d} for d in self.sources.dotted if d.startswith(module + ".") and d in sys.modules]
            else:
                self.omit(name, "module", "a module that the conversation made")

    def imported(self, name, v):
        module, attr = self.sources.imports.get(name, ("", ""))
        module = sys.modules.get(module)
        return _type(module) is types.ModuleType and vars(module).get(attr) is v

    def define(self, name, v):
        """Finds the source of a definition, or notes that a name is a value or cannot be carried."""
        kind, f = _type(v), v
        for _ in range(10):
            try:
                wrapped = f.__dict__["__wrapped__"]
            except (AttributeError, KeyError, TypeError):
                break
            except Exception:
                break
            f = wrapped
        if _isinstance(v, type) and v.__module__ == "__main__":
            if v.__qualname__ == name:
                s = self.sources.kind(name, v)
                if s is None:
                    self.omit(name, "class", "its source is not known")
                else:
                    self.defs[name] = s, "class"
                    if type(s.node) is ast.ClassDef:
                        self.states[name] = self.state_of_class(v)
                return
            self.values[name] = v  # another name of a class, or one in another
        elif _type(f) is types.FunctionType and f.__module__ == "__main__":
            s = self.sources.function(name, f.__code__)
            if s is not None and (f is v or s.decorated) and (s.decorated or not f.__closure__):
                self.defs[name] = s, "function"
                if f is v:
                    state = v.__defaults__, v.__kwdefaults__, v.__dict__
                    if any(state):
                        self.states[name] = {"defaults": v.__defaults__, "kwdefaults": v.__kwdefaults__, "dict": dict(v.__dict__)}
            elif f.__closure__:
                self.omit(name, "function", "a function with a closure")
            elif self.main.get(f.__name__) is v and f.__name__ != name:
                self.values[name] = v
            elif f.__name__ == "<lambda>":
                self.omit(name, "function", "a lambda whose source is not a statement of its own")
            else:
                self.omit(name, "function", "its source is not known, or its name has another definition now")
        elif kind.__module__ == "typing" and _getattr(v, "__module__", "") == "__main__" and name in self.sources.defs:
            self.defs[name] = self.sources.defs[name][-1], "type"
        else:
            self.values[name] = v

    def state_of_class(self, cls):
        if any(k.__name__ == "EnumType" or k.__name__ == "EnumMeta" for k in _type(cls).__mro__):
            return {}
        state = {}
        for k, v in vars(cls).items():
            if k.startswith("__") and k.endswith("__") or k.startswith("_abc_"):
                continue
            if hasattr(_type(v), "__get__") or hasattr(_type(v), "__set__") or _isinstance(v, type):
                continue
            state[k] = v
        return state

    # Values.

    def pickle(self, value, limit):
        sink = Sink(limit)
        p = Pickler(sink, self.defined)
        p.dump(value)
        return sink, p.refs

    def try_value(self, table, name):
        """Pickles a value by itself, to find out whether that works and what it needs."""
        value = table[name]
        if table is self.states and "defaults" not in value or table is self.states and _isinstance(self.main[name], type):
            for k in list(value):  # attributes of a class, one by one
                if self.attempt("%s.%s" % (name, k), value[k], name) is None:
                    del value[k]
            if not value:
                del table[name]
            return
        if self.attempt(name, value, name) is None:
            del table[name]

    def attempt(self, label, value, name):
        try:
            sink, refs = self.pickle(value, self.limit)
            for env, secret in self.keep_out.items():
                if secret in b"".join(sink.parts):
                    raise ValueError("it contains the value of the environment variable " + env)
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            self.put_back()
            self.omit(label, _name(_type(value)), _why(e))
            return None
        missing = sorted(r for r in refs if r not in self.defs)
        if missing:
            self.omit(label, _name(_type(value)), "it needs the definition of %s, which is not carried" % missing[0])
            return None
        self.refs.setdefault(name, set()).update(refs)
        return sink

    def steps(self):
        """Orders definitions and values so that each comes after what it needs."""
        steps, done = [], set()

        def emit(name):
            if name in done:
                return
            done.add(name)
            if name in self.defs:
                source, kind = self.defs[name]
                for n in sorted(source.needs()):
                    emit(n)
                steps.append({"op": "define", "name": name, "kind": kind, "source": source.text})
                if source.decorated:
                    steps[-1]["decorated"] = True
            elif name in self.values:
                for n in sorted(self.refs[name]):
                    emit(n)
                steps.append({"op": "value", "name": name, "kind": _clean(_name(_type(self.values[name])))})

        order = sorted(self.defs, key=lambda n: self.position(self.defs[n][0]))
        for name in [n for n in self.main if n not in self.defs] + order:
            emit(name)
        return steps + [{"op": "state", "name": name, "kind": self.defs[name][1]} for name in self.states]

    def position(self, source):
        if not hasattr(self, "files"):
            self.files = {f: i for i, f in enumerate(linecache.cache)}
        return self.files.get(source.file, 0), source.line

    def dump(self):
        """Returns the steps and their pickles, which share a memo, so that objects stay shared."""
        tries = 5
        while tries:
            steps = self.steps()
            sink = Sink(self.limit - 300 * _len(steps) - sum(_len(s.text) for s, _ in self.defs.values()))
            p, failed = Pickler(sink, self.defined), None
            for step in steps:
                if step["op"] == "define":
                    continue
                table = self.values if step["op"] == "value" else self.states
                before = sink.size
                try:
                    p.dump(table[step["name"]])
                except KeyboardInterrupt:
                    raise
                except BaseException as e:
                    self.put_back()
                    failed = table, step, _why(e)
                    tries -= _type(e) is not Full
                    break
                step["size"] = sink.size - before
            if failed is None:
                return steps, sink.parts
            table, step, reason = failed  # it worked once; the others are written anew, because the memo knows it
            del table[step["name"]]
            self.omit(step["name"], step["kind"], reason)
        raise RuntimeError("values change while they are pickled")


def _make(args):
    main = sys.modules["__main__"].__dict__
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = workdir
    names, built, environ, path = dict(main), dict(vars(builtins)), dict(os.environ), list(sys.path)
    streams = sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__, sys.__stdin__
    recursion, hook, display = sys.getrecursionlimit(), sys.excepthook, sys.displayhook
    keep_out = [(n, os.environ[n].encode("utf-8", "surrogateescape")) for n in args["env"] if _len(os.environ.get(n, "")) >= 4]
    open_, write = os.open, os.write
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _getattr(os, "O_NOFOLLOW", 0)
    close, line, relpath = os.close, dumps, os.path.relpath
    version = ".".join(map(str, sys.version_info[:3]))
    implementation, platform = sys.implementation.name, sys.platform

    def put_back():
        for now, was in (main, names), (vars(builtins), built):
            if _list(now) != _list(was) or any(now[k] is not v for k, v in was.items()):
                now.clear()
                now.update(was)
        sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__, sys.__stdin__ = streams
        sys.excepthook, sys.displayhook = hook, display
        sys.setrecursionlimit(recursion)
        sys.path[:] = path
        if dict(os.environ) != environ:
            os.environ.clear()
            os.environ.update(environ)
        try:
            os.chdir(cwd)
        except OSError:
            pass

    try:
        m = Maker(names, args["limit"], keep_out, put_back)
        steps, parts = m.dump()
    finally:
        put_back()
    dir = relpath(cwd, workdir)
    if dir.startswith(".."):
        m.omit("os.getcwd()", "directory", "the current directory is not below the working directory")
        dir = "."
    header = {"python": version, "implementation": implementation, "platform": platform, "dir": dir}
    header.update(imports=m.imports, steps=steps, omitted=m.omitted)
    fd = open_(args["path"], flags, 0o600)
    try:
        for part in [line(header).encode() + b"\n"] + parts:
            part = memoryview(part)
            while part:
                part = part[write(fd, part) :]
    finally:
        close(fd)


_make(loads(args))
