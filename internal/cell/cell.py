"""What it means to run a cell of Python: the one source for Pyodide and for the runner.

The module does no I/O of its own; a host gives it a place to write and to read:

    host.open(stream)              a raw binary stream for "stdout" or "stderr", which should be in C; writing may block
    host.output(main, bundle)      a value: {media type: bytes}, after all text that was written before it
    host.read(n)                   up to n bytes of the run's standard input, b"" at its end
    host.fileno(stream)            optional: the descriptor of "stdin" that a child process may inherit
    host.linger()                  optional: awaited when the code has ended, and waits for what that has started; without await at
                                   the top level of the cell, see Interpreter.run
    host.stray()                   optional: whether its caller was left running by an earlier run; see Interpreter.sift

    it = Interpreter(host, workdir="/workspace")
    r = it.run(source, cell=1)     an Outcome, or a coroutine that gives one if the cell awaits at its top level

Loading the module changes nothing, so that it may be part of a memory snapshot. An Interpreter takes over the process.

The code in the cell shares the process with this module and may break all that it can reach. So whatever is needed after it has
run is bound here, before, and what is imported later never comes from the user's directories.
"""

import builtins
import io
import os
import sys
import time

# The functions below use built-in names from this copy, which a cell cannot change.
__builtins__ = dict(vars(builtins))

# Limits of what is sent to the host. Text is cut, other representations are left out.
MAX_TEXT = 1 << 20  # characters of text/plain
MAX_DATA = 16 << 20  # bytes of a representation
MAX_TYPES = 32  # representations of a value
MAX_JSON = 1 << 20  # characters of application/json made from plain values
MAX_MESSAGE = 16 << 10  # characters of the message of an exception
MAX_TRACEBACK = 64 << 10
MAX_FRAMES = 2000  # frames of a traceback, before repeated ones are folded
MAX_SOURCES = 4 << 20  # characters of cells whose source lines tracebacks can show
MAX_FILES = 10000  # reported changes
MAX_ENTRIES = 200000  # entries in a scan
MAX_KEPT = 20  # values and sources that later cells can use
MAX_KEPT_SIZE = 16 << 20  # bytes of these values, as far as known
MAX_UPDATES = 100  # displays with separate updates
MAX_ROWS = 1000  # rows of a data frame that is passed on as data
PART = ".execbroker-"  # begins the names of files that a host has not completed

_ONLY_AST, _TOP_LEVEL_AWAIT, _CO_COROUTINE = 0x400, 0x2000, 0x80
_CO_FUTURES = 0x1FE0000  # "from __future__ import ..." also applies to later cells
_TICK = 10_000_000  # ns

_HERE = (lambda: 0).__code__.co_filename
_LIBRARY = os.path.dirname(os.__file__) + "/"
_PATH = list(sys.path)
_import, _environ, _now = __import__, os.environ, time.time_ns
_chdir, _getcwd, _join, _scandir = os.chdir, os.getcwd, os.path.join, os.scandir
_excepthook, _realpath = sys.excepthook, os.path.realpath
_StringIO, _BytesIO, _TextIOWrapper = io.StringIO, io.BytesIO, io.TextIOWrapper
_BufferedReader, _BufferedWriter = io.BufferedReader, io.BufferedWriter


class Outcome:
    """How a cell ended. exception is None or a dict with type, message, traceback and line (in the
    cell, 0: not known)."""

    __slots__ = ("exit_code", "exception", "interrupted")

    def __init__(self, exit_code=0, exception=None, interrupted=False):
        self.exit_code = exit_code
        self.exception = exception
        self.interrupted = interrupted


class Interpreter:
    """The interpreter of this process. There can be one."""

    def __init__(self, host, workdir="/workspace"):
        self.host, self.linger = host, getattr(host, "linger", None)
        self._text, self._sieve = _Text, None
        self.workdir = workdir
        self.main = type(sys)("__main__")
        self.main.__builtins__ = builtins
        self._out = self._err = self._in = None
        self._raw = {}
        self._flags = _TOP_LEVEL_AWAIT
        self._sources, self._sources_size = {}, 0
        self._shown = []
        self.cell, self.capture, self._updates, self._shell = 0, None, {}, None
        self._in_list, self._out_dict, self._sizes = [""], {}, {}
        _environ.setdefault("MPLBACKEND", "Agg")
        self._named = ""  # the last name that was set for the program
        sys.argv = [""]
        if workdir not in sys.path:
            sys.path.insert(0, workdir)
        # Otherwise compiled files of the user's modules would appear among the files of a run.
        sys.dont_write_bytecode = True
        self._hooks = {"matplotlib.pyplot": self._adopt, "linecache": lambda module: self._publish(self._sources)}
        for name in _ADOPTED:
            self._hooks[name] = self._adopter(name)
        sys.meta_path.insert(0, _Finder(self._hooks))
        sys.meta_path.append(_Last(self))  # installed modules have precedence
        self.display, self.shell = self.display, self.shell  # one object each, however often they are asked for
        builtins.display, builtins.get_ipython = self.display, self.shell
        builtins.In, builtins.Out = self._in_list, self._out_dict
        for name in ("_", "__", "___"):
            setattr(builtins, name, "")
        try:
            _chdir(workdir)
        except OSError:
            pass
        self._install()

    def after_import(self, name, hook):
        """Calls hook with a module of the standard library as soon as it is imported."""
        if name in sys.modules:
            hook(sys.modules[name])
        else:
            self._hooks[name] = hook

    def sift(self, on):
        """Sets whether output of stray callers is dropped. That makes writing 50 % slower."""
        if on and self._sieve is None:
            self._sieve = _sieve(self.host.stray)
        self._text = self._sieve if on else _Text
        for f in (self._out, self._err):
            f.__class__ = self._text

    def run(self, source, cell=1, dir=None, env=None):
        """Runs one cell in directory dir, with env added to the environment. Errors of the code are
        not raised."""
        name = "<cell %d>" % cell
        out = Outcome()
        parts, around = (), ()
        self.cell, self.capture, self._updates = cell, None, {}
        try:
            self._install()
            self._name_program(name)
            self._note_source(source)
            parts, around = self._compile(source, name)
        except BaseException as e:
            self._uncaught(out, e, name)
        job = self._job(out, parts, around, name, dir, env or {})
        if any(code.co_flags & _CO_COROUTINE for code, _ in parts):
            return job
        # A job without await at its top level needs no event loop, and may start one itself. Only a
        # host that lingers makes it yield.
        try:
            return _rest(job, job.send(None))
        except StopIteration as done:
            return done.value

    # The parts of a run.

    async def _job(self, out, parts, around, name, dir, env):
        saved = None
        try:
            entered = []
            try:
                saved = self._surroundings(dir, env)
                for manager in around:
                    manager.__enter__()
                    entered.append(manager)
                for code, shows in parts:
                    value = eval(code, self.main.__dict__)
                    if code.co_flags & _CO_COROUTINE:
                        value = await value
                    if shows and value is not None:
                        self._keep(value, self._emit(True, value))
                    value = None
            except BaseException as e:
                self._uncaught(out, e, name)
            while entered:
                entered.pop().__exit__()
            self.capture = None
            if not out.interrupted and self.linger is not None:
                await self.linger()
            if not out.interrupted:
                self._settle()
            self._figures(show=not out.interrupted)
            self._flush()
        except KeyboardInterrupt:
            out.exit_code, out.interrupted = 130, True
        except BaseException as e:
            self._judge(out, e, name)
        _surely(_mend)
        if out.interrupted:
            _surely(_forget_halves)
        _surely(self._restore, saved)
        _surely(self._flush)
        return out

    def _install(self):
        """Restores what the code of an earlier cell may have removed or replaced."""
        # A stream is kept as long as it works, because a logging handler may use it.
        if not self._works(self._out, "stdout"):
            self._out = self._writer("stdout", "surrogateescape")
        if not self._works(self._err, "stderr"):
            self._err = self._writer("stderr", "backslashreplace")
        # Unread input of an earlier run is not input of this one.
        self._in = _TextIOWrapper(_BufferedReader(_Source(self.host)), "utf-8", "surrogateescape")
        self._in.mode = "r"
        sys.stdout = sys.__stdout__ = self._out
        sys.stderr = sys.__stderr__ = self._err
        sys.stdin = sys.__stdin__ = self._in
        sys.displayhook = self._displayhook
        sys.modules["__main__"] = self.main
        sys.modules["builtins"] = builtins
        sys.modules["sys"] = sys
        for k, v in _MAIN.items():
            self.main.__dict__.setdefault(k, v)
        self.main.__dict__["__builtins__"] = builtins
        _mend()
        self._shown = []

    def _name_program(self, name):
        """Sets the cell as the program, unless the code has set another one."""
        before, self._named = self._named, name
        if type(sys.argv) is list and sys.argv[:1] == [before]:
            sys.argv[0] = name
        if not before or self.main.__dict__.get("__file__", "") in ("", _join(self.workdir, before)):
            self.main.__file__ = _join(self.workdir, name)

    def is_program(self, path):
        """Reports whether path is the name of the cell as a program."""
        return path == _join(self.workdir, self._named)

    def _writer(self, stream, errors):
        # An interrupt may come between a write in Python and the note that it was done, and then
        # the text is written twice. A raw stream in C cannot be torn so, and it is faster.
        raw = self._raw[stream] = self.host.open(stream)
        # As on a terminal, text is written at the end of each line.
        f = self._text(_BufferedWriter(raw, 1 << 16), "utf-8", errors, "\n", line_buffering=True)
        f.mode = "w"
        return f

    def _works(self, f, stream):
        try:
            f.flush()
            return f.buffer.raw is self._raw[stream] and f.encoding == "utf-8"
        except Exception:
            return False

    def _surroundings(self, dir, env):
        saved = {k: _environ.get(k) for k in env}, None
        _environ.update(env)
        if dir:
            try:
                cwd = _getcwd()
            except OSError:
                cwd = self.workdir
            saved = saved[0], cwd
            try:
                _chdir(_join(self.workdir, dir))
            except BaseException:
                self._restore(saved)
                raise
        return saved

    def _restore(self, saved):
        if saved is None:
            return
        for k, v in saved[0].items():
            if v is None:
                _environ.pop(k, None)
            else:
                _environ[k] = v
        if saved[1] is not None:
            for d in (saved[1], self.workdir, "/"):
                try:
                    return _chdir(d)
                except OSError:
                    pass

    def _compile(self, source, name):
        """Returns code objects, and for each whether its value is the value of the cell."""
        if source[:1] == "\ufeff":
            source = source[1:]
        self._remember(source, name)
        lines, around = self._sources[name], ()
        try:
            tree = compile(source, name, "exec", self._flags | _ONLY_AST, True)
        except SyntaxError:
            # Only code that is not valid Python is treated as a notebook cell.
            found = _notebook().transform(source)
            if found is None:
                raise
            tree = _compile_again(found.source, name, self._flags | _ONLY_AST)
            lines, around = _StringIO(found.source + "\n", None).readlines(), _notebook().surround(self, found.around)
        parts = []
        last = tree.body[-1] if tree.body else None
        if type(last).__name__ == "Expr" and not self._silenced(lines, last):
            tree.body.pop()
            parts.append((compile(type(_EXPRESSION)(last.value), name, "eval", self._flags, True), True))
        if tree.body:
            parts.insert(0, (compile(tree, name, "exec", self._flags, True), False))
            self._flags |= parts[0][0].co_flags & _CO_FUTURES
        return parts, around

    def _silenced(self, lines, last):
        """Reports whether a semicolon follows the last expression, so that its value is not shown.
        """
        rest = [lines[last.end_lineno - 1].encode("utf-8", "surrogatepass")[last.end_col_offset:].decode("utf-8", "replace")]
        return "".join(rest + lines[last.end_lineno:]).lstrip()[:1] == ";"

    def _remember(self, source, name):
        self._drop(name)
        lines = self._sources[name] = _StringIO(source + "\n", None).readlines()
        self._sources_size += sum(map(len, lines))
        while self._sources_size > MAX_SOURCES and len(self._sources) > 1:
            self._drop(next(iter(self._sources)))
        self._publish([name])

    def _drop(self, name):
        self._sources_size -= sum(map(len, self._sources.pop(name, ())))
        cache = self._line_cache()
        if cache is not None:
            cache.pop(name, None)

    def _line_cache(self):
        # Importing it takes time; the hook publishes all if another module imports it.
        cache = getattr(sys.modules.get("linecache"), "cache", None)
        return cache if type(cache) is dict else None

    def _publish(self, names):
        """Adds source lines to linecache, for tracebacks, warnings, inspect and debuggers."""
        cache = self._line_cache()
        if cache is not None:
            for k in names:
                cache[k] = (sum(map(len, self._sources[k])), None, self._sources[k], k)

    def _flush(self):
        for f in (sys.stdout, self._out, sys.stderr, self._err):
            try:
                f.flush()
            except Exception:  # closed or replaced by the code
                pass

    # Values.

    def display(self, *values, raw=False, display_id=None, update=False, **options):
        """Shows values in their richest representations. With raw they are dicts of media types and data.

        With a display_id, True for one that is made, it returns a handle. What is shown stays shown: of all updates of a display the
        last one is shown as well, when the cell has ended. Other options of notebooks are taken, and mean nothing here.
        """
        handle = None
        if display_id is not None:
            handle = self._handle(None if display_id is True else display_id)
        for v in values:
            key = str(handle.display_id) if handle else ""
            if update and (key in self._updates or len(self._updates) < MAX_UPDATES):
                self._updates[key] = v, raw
            else:
                self._emit(False, v, raw)
        return handle

    def _handle(self, display_id):
        kind = _notebook().DisplayHandle
        kind.it = self
        return kind(display_id)

    def _settle(self):
        """Shows the last updates of displays."""
        updates, self._updates = self._updates, {}
        for value, raw in updates.values():
            try:
                self._emit(False, value, raw)
            except Exception as e:
                self._complain("update of a display", e)

    def shell(self):
        """Returns what get_ipython() does in a notebook."""
        if self._shell is None:
            self._shell = _notebook().Shell(self)
        return self._shell

    def give(self, main, bundle):
        """Passes a value to the host, or to a capture of what the cell shows."""
        if self.capture is None:
            self.host.output(main, bundle)
        else:
            self.capture.append(bundle)

    def _note_source(self, source):
        """Keeps the last sources for In, indexed by the numbers of the cells."""
        self._in_list += [""] * (self.cell + 1 - len(self._in_list))
        self._in_list[self.cell] = source if len(source) <= MAX_SOURCES // MAX_KEPT else ""
        if self.cell >= MAX_KEPT:
            self._in_list[self.cell - MAX_KEPT] = ""

    def _keep(self, value, bundle):
        """Keeps the last values for Out and _, up to a number of bytes."""
        size = _size(value, bundle)
        if size > MAX_KEPT_SIZE or value is self._out_dict:
            return
        try:
            builtins._, builtins.__, builtins.___ = value, builtins._, builtins.__
        except AttributeError:  # removed by the code
            builtins._ = builtins.__ = builtins.___ = value
        self._out_dict[self.cell], self._sizes[self.cell] = value, size
        while len(self._sizes) > MAX_KEPT or sum(self._sizes.values()) > MAX_KEPT_SIZE:
            first = min(self._sizes)
            del self._sizes[first]
            self._forget(self._out_dict.pop(first, None))

    def _forget(self, value):
        for name in ("_", "__", "___"):
            if builtins.__dict__.get(name) is value:
                builtins.__dict__[name] = ""

    def _displayhook(self, value):
        if value is not None:
            self._keep(value, self._emit(False, value))

    def _emit(self, main, value, raw=False):
        b = {}
        if raw:
            self._add_all(b, value)
        elif self._shows_itself(value):
            return b
        else:
            self._represent(b, value)
        self._flush()
        self.give(main, b)
        return b

    def _shows_itself(self, value):
        """Calls the display method of a value, as notebooks do, and reports whether it has one."""
        if isinstance(value, type) or not callable(getattr(type(value), "_ipython_display_", None)):
            return False
        try:
            value._ipython_display_()
            return True
        except Exception as e:
            self._complain("_ipython_display_ of %s" % _name(type(value)), e)
            return False

    def _represent(self, b, value):
        kind = type(value)
        text = repr(value)
        b["text/plain"] = _cut(text, MAX_TEXT).encode("utf-8", "replace")
        if kind in _PLAIN:
            try:
                b["application/json"] = _plain_json(value).encode("utf-8")
            except ValueError:
                pass
            return
        if isinstance(value, type):
            return
        if kind.__module__ == "matplotlib.figure" and hasattr(kind, "savefig"):
            b["image/png"] = _png(value, None)
            self._add_chart(b, value)
            self._shown.append(value)
        if any(k.__name__ == "DataFrame" and k.__module__.startswith("pandas.core.") for k in kind.__mro__):
            self._add_rows(b, value)
        for mime, method in _METHODS:
            if getattr(kind, method, None) is None:
                continue
            try:
                data = getattr(value, method)()
                if isinstance(data, tuple):  # with metadata
                    data = data[0]
                if data is None:
                    continue
                if mime is None:
                    self._add_all(b, data)
                else:
                    self._add(b, mime, data)
            except Exception as e:
                self._complain("%s of %s" % (method, _name(kind)), e)

    def _add_rows(self, b, frame):
        """Adds the rows of a data frame as data, if the format supports its index and columns."""
        try:
            data = frame.head(max(min(MAX_ROWS, 20 * MAX_ROWS // max(frame.shape[1], 1)), 1)).to_json(orient="table")
            if len(data) <= MAX_JSON:
                b["application/vnd.dataresource+json"] = data.encode("utf-8")
        except Exception:  # columns with several levels, duplicate names
            pass

    def _add_chart(self, b, figure):
        """Adds the chart of a figure as data, if it is of a known kind."""
        try:
            notebook = _notebook()
            data = notebook.chart(figure)
            if data is not None:
                b[notebook.CHART] = data
        except Exception:  # artists of other libraries
            pass

    def _add_all(self, b, data):
        for mime, d in dict(data).items():
            if d is not None:
                self._add(b, mime, d)

    def _add(self, b, mime, data):
        mime = str(mime).lower()
        kind, _, form = mime.partition("/")
        if not kind or not form or len(mime) > 100 or not mime.isascii() or not mime.isprintable() or "/" in form or set(mime) & set(' ;,"\\'):
            raise ValueError("not a media type: " + ascii(mime[:100]))
        if mime not in b and len(b) >= MAX_TYPES:
            raise ValueError("more than %d representations" % MAX_TYPES)
        if isinstance(data, (bytes, bytearray, memoryview)):
            data = bytes(data)
        elif mime.endswith("json"):
            data = _json_text(data).encode("utf-8", "replace")
        elif not isinstance(data, str):
            raise TypeError("%s is %s, not text or bytes" % (mime, _name(type(data))))
        elif mime.startswith("image/") and mime != "image/svg+xml" or mime == "application/pdf":
            data = _load("binascii").a2b_base64(data)
            if not data:
                raise ValueError(mime + " is not base64")
        else:
            if mime == "text/plain":
                data = _cut(data, MAX_TEXT)
            data = data.encode("utf-8", "replace")
        if len(data) > MAX_DATA:
            raise ValueError("%s has %d bytes, %d are allowed" % (mime, len(data), MAX_DATA))
        b[mime] = data

    def _complain(self, what, e):
        try:
            sys.stderr.write("%s: %s: %s\n" % (what, _name(type(e)), _message(e)))
        except Exception:
            pass

    def _adopter(self, name):
        def adopt(module):
            try:
                _notebook().ADOPT[name](self, module)
            except Exception as e:  # an unknown version
                self._complain(name, e)

        return adopt

    # Figures.

    def _adopt(self, pyplot):
        """Makes pyplot.show emit: the Agg backend would only warn that it cannot."""

        def show(*args, **kwargs):
            self._figures()

        pyplot.show = show

    def _figures(self, show=True):
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None:
            return
        try:
            for n in list(plt.get_fignums()):
                try:
                    if show:
                        figure = plt.figure(n)
                        if not any(figure is f for f in self._shown):
                            data = _png(figure, plt)
                            text = _cut(repr(figure), MAX_TEXT).encode("utf-8", "replace")
                            self._flush()
                            b = {"text/plain": text, "image/png": data}
                            self._add_chart(b, figure)
                            self.give(False, b)
                except Exception as e:
                    self._complain("figure %s" % ascii(n)[:100], e)
                finally:
                    plt.close(n)
        except Exception as e:  # not the module that its name suggests
            self._complain("matplotlib.pyplot", e)

    # Exceptions.

    def _judge(self, out, e, name):
        """Describes the exception e of the cell in out."""
        if isinstance(e, SystemExit):
            out.exit_code = self._exit_code(e)
            return
        out.exit_code = 1
        if isinstance(e, KeyboardInterrupt) or _is_cancel(e):
            out.exit_code, out.interrupted = 130, True
        kind = _name(type(e))
        out.exception = {"type": kind, "message": "", "traceback": kind + "\n", "line": 0}
        try:
            out.exception["line"] = _line(e, name)
            out.exception["message"] = message = _message(e)
            out.exception["traceback"] = "%s: %s\n" % (kind, message)
            self._publish(self._sources)
            out.exception["traceback"] = _plain(_cut(_trusted(_traceback, e), MAX_TRACEBACK))
        except KeyboardInterrupt:
            out.interrupted = True
        except BaseException:  # out of memory, out of stack, or a hostile exception: keep what is there
            pass

    def _uncaught(self, out, e, name):
        """Handles an exception that ends the cell, and passes it to the hook that the code has set.
        """
        self._judge(out, e, name)
        hook = sys.excepthook
        if out.exception is None or out.interrupted or hook is _excepthook or not callable(hook):
            return
        tb = e.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename == _HERE:
            tb = tb.tb_next
        try:
            hook(type(e), e.with_traceback(tb), tb)
        except SystemExit as last:
            out.exit_code = self._exit_code(last)
        except KeyboardInterrupt:
            out.exit_code, out.interrupted = 130, True
        except BaseException as last:
            self._complain("sys.excepthook", last)

    def _exit_code(self, e):
        code = e.code
        if code is None:
            return 0
        if isinstance(code, int):
            return int(code) & 0xFF if -(1 << 63) <= int(code) < 1 << 63 else 255
        try:
            self._flush()
            sys.stderr.write(_cut(str(code), MAX_TEXT) + "\n")
        except Exception:
            pass
        return 1


class _Finder:
    """Calls hooks when modules have been imported, before the importing code continues."""

    def __init__(self, hooks):
        self._hooks = hooks

    def find_spec(self, name, path=None, target=None):
        if name not in self._hooks:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader, self._hooks[name])
                return spec
        return None


class _Last:
    """Provides the parts of IPython that programs import, if it is not installed."""

    def __init__(self, it):
        self._it, self._modules = it, None

    def find_spec(self, name, path=None, target=None):
        if name != "IPython" and not name.startswith("IPython."):
            return None
        if name != "IPython" and getattr(sys.modules.get("IPython"), "__file__", "") != "<execbroker IPython>":
            return None  # a part that the installed IPython does not have
        if self._modules is None:
            self._modules = _notebook().ipython(self._it)
        if name not in self._modules:
            return None
        spec = type(sys.__spec__)(name, self, is_package=hasattr(self._modules[name], "__path__"))
        return spec

    def create_module(self, spec):
        return self._modules[spec.name]

    def exec_module(self, module):
        pass


class _Loader:
    def __init__(self, loader, hook):
        self._loader, self._hook = loader, hook

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        self._hook(module)


_loaded = None


class _Rest:
    """The rest of a started coroutine."""

    def __init__(self, job, step):
        self._job, self._step = job, step

    def __await__(self):
        step, send, value = self._step, self._job.send, None
        while True:
            try:
                send, value = self._job.send, (yield step)
            except BaseException as e:
                send, value = self._job.throw, e
            try:
                step = send(value)
            except StopIteration as done:
                return done.value


async def _rest(job, step):
    return await _Rest(job, step)


def _notebook():
    """Returns the module of notebook.py. Its text follows this one, or the host has a function that
    returns its code."""
    global _loaded
    if _loaded is None:
        module = type(sys)("notebook")
        module.__dict__.update(__builtins__=__builtins__, _load=_load, _ONLY_AST=_ONLY_AST, _StringIO=_StringIO, _environ=_environ)
        module.__dict__.update(_cut=_cut, MAX_JSON=MAX_JSON)
        code = compile(_NOTEBOOK, "<execbroker notebook.py>", "exec") if type(_NOTEBOOK) is str else _NOTEBOOK()
        exec(code, module.__dict__)
        _loaded = module
    return _loaded


def _compile_again(source, name, flags):
    """Compiles the translation of a cell. The syntax error of the original cell is not the cause of
    an error in it."""
    try:
        return compile(source, name, "exec", flags, True)
    except SyntaxError as e:
        e.__context__ = None
        raise


def _png(figure, plt):
    if getattr(figure, "stale", True) is False:
        saved = getattr(figure, "_execbroker_saved", None)  # see displays.py
        if type(saved) is bytes and saved:
            return saved
    buf = _BytesIO()
    (figure if hasattr(figure, "savefig") else plt).savefig(buf, format="png", bbox_inches="tight")
    data = buf.getvalue()
    if len(data) > MAX_DATA:
        raise ValueError("image/png has %d bytes, %d are allowed" % (len(data), MAX_DATA))
    return data


def _mend():
    """Restores built-in names that are missing or not callable. A name with another callable is the
    user's state."""
    now = builtins.__dict__
    for k, v in __builtins__.items():
        if now.get(k, now) is not v and (k not in now or callable(v) and not callable(now[k])):
            now[k] = v


def _forget_halves():
    """Forgets the modules of packages whose import did not end. Python forgets such a package, and
    could not import it again with the modules that it has kept: "from .part import *" would not
    bind part."""
    try:
        for name in sorted(n for n in list(sys.modules) if type(n) is str):
            package = name.rpartition(".")[0]
            if package and package not in sys.modules:
                del sys.modules[name]
    except Exception:  # it is no dictionary any more: that is the state of the user
        pass


def _surely(f, *args):
    """Calls f until no interrupt has ended it early."""
    while True:
        try:
            return f(*args)
        except KeyboardInterrupt:
            pass


def _load(name):
    """Imports a module of the standard library."""
    if name not in sys.modules:
        _trusted(_import, name)
    return sys.modules[name]


def _trusted(f, *args):
    """Calls f. Its imports come from the standard library, whatever files the user has created."""
    path, sys.path = sys.path, _PATH
    try:
        return f(*args)
    finally:
        sys.path = path
