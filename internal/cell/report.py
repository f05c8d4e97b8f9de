# What is said of a cell: its errors, its values as JSON, and the files that it has changed. It
# follows cell.py and streams.py in one program.


def _cut(text, limit):
    if len(text) <= limit:
        return text
    half = limit // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def _plain(text):
    return _load("re").sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.?)", "", text) if "\x1b" in text else text


def _name(kind):
    try:
        return str(type.__dict__["__name__"].__get__(kind))[:200]
    except Exception:
        return "Exception"


def _message(e):
    try:
        return _plain(_cut(str(e), MAX_MESSAGE))
    except Exception:
        return "<message of %s cannot be shown>" % _name(type(e))


def _is_cancel(e):
    """Reports whether e ends the task of the cell from outside, and not one that the code awaited
    and cancelled itself."""
    if _name(type(e)) != "CancelledError" or "asyncio" not in sys.modules:
        return False
    try:
        asyncio = sys.modules["asyncio"]
        cancelling = getattr(asyncio.current_task(), "cancelling", None)  # from Python 3.11 on
        return isinstance(e, asyncio.CancelledError) and (cancelling is None or cancelling() > 0)
    except Exception:
        return False


def _line(e, name):
    line = 0
    tb = e.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == name:
            line = tb.tb_lineno
        tb = tb.tb_next
    if not line and isinstance(e, SyntaxError) and e.filename == name:
        line = e.lineno
    return line if type(line) is int and line > 0 else 0


def _is_users(filename):
    return not (
        filename == _HERE
        or filename.startswith((_LIBRARY, "<frozen ", "<execbroker "))  # hosts give their own files the last prefix
        or "/site-packages/" in filename
        or "/dist-packages/" in filename
    )


def _traceback(e):
    traceback = _load("traceback")
    depth, tb = 0, e.__traceback__
    while tb is not None:
        depth, tb = depth + 1, tb.tb_next
    limit = -MAX_FRAMES if depth > MAX_FRAMES else None
    te = traceback.TracebackException(type(e), e, e.__traceback__, limit=limit)
    todo, seen = [te], 0
    while todo and seen < 1000:
        t = todo.pop()
        seen += 1
        if t.stack:
            t.stack[:] = [f for f in t.stack if _is_users(f.filename)]
        if not t.stack:
            # Nothing is left below the line "Traceback", which each of these suppresses in its
            # versions of Python.
            if sys.version_info >= (3, 11):
                t.stack = None
            else:
                t.exc_traceback = None
        todo += [x for x in (t.__cause__, t.__context__) if x is not None]
        todo += getattr(t, "exceptions", None) or ()
    return "".join(te.format())


_PLAIN = (dict, list, tuple, str, int, float, bool, type(None))
_MAIN = {"__name__": "__main__", "__doc__": None, "__package__": None, "__loader__": None, "__spec__": None}
_ADOPTED = (
    "plotly.basedatatypes", "PIL.Image", "altair.vegalite.v4.api", "altair.vegalite.v5.api", "altair.vegalite.v6.api", "bokeh.io.showing",
    "matplotlib.figure", "matplotlib.axes._axes", "IPython.core.display", "IPython.core.display_functions", "IPython.core.getipython",
    "multiprocessing.spawn",
)  # modules that notebook.py changes when they are imported
_EXPRESSION = compile("0", "", "eval", _ONLY_AST)
_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
    (None, "_repr_mimebundle_"),  # has precedence, as in Jupyter
)
_ESCAPES = {i: "\\u%04x" % i for i in range(32)}
_ESCAPES.update({34: '\\"', 92: "\\\\", 10: "\\n", 13: "\\r", 9: "\\t"})


def _plain_json(value):
    """Returns the JSON text of a value of plain types. Anything else is a ValueError."""
    parts = []
    left = MAX_JSON

    def put(s):
        nonlocal left
        left -= len(s)
        if left < 0:
            raise ValueError("too large")
        parts.append(s)

    def text(s):
        if len(s) > left:
            raise ValueError("too large")
        s.encode("utf-8")  # a lone surrogate is a ValueError as well
        put('"%s"' % s.translate(_ESCAPES))

    def walk(v, depth):
        kind = type(v)
        if depth > 50:
            raise ValueError("too deep")
        if kind is str:
            text(v)
        elif v is None or kind is bool:
            put("null" if v is None else "true" if v else "false")
        elif kind is int or kind is float and v - v == 0:
            put(repr(v))
        elif kind is list or kind is tuple:
            put("[")
            for i, x in enumerate(v):
                if i:
                    put(", ")
                walk(x, depth + 1)
            put("]")
        elif kind is dict:
            put("{")
            for i, (k, x) in enumerate(v.items()):
                if type(k) is not str:
                    raise ValueError("a key is not text")
                if i:
                    put(", ")
                text(k)
                put(": ")
                walk(x, depth + 1)
            put("}")
        else:
            raise ValueError("not plain")

    walk(value, 0)
    return "".join(parts)


def _size(value, bundle):
    """Returns the size of a value in bytes, as far as known."""
    size = sum(len(data) for data in bundle.values())
    try:
        if type(value) in _PLAIN or type(value) in (bytes, bytearray, set, frozenset):
            size = max(size, sys.getsizeof(value))
        else:
            said = getattr(value, "nbytes", 0)
            if type(said) is int:
                size = max(size, said)
            if type(value).__module__.startswith("pandas."):
                use = value.memory_usage()
                size = max(size, int(use.sum() if hasattr(use, "sum") else use))
    except Exception:
        pass
    return size


def _json_text(value):
    """Returns the JSON text of a display method's result: an object, or text that is already JSON.
    """
    json = _load("json")
    if type(value) is str:
        try:
            json.loads(value)
            return value
        except ValueError:
            pass
    return json.dumps(value)


def scan(root, home=""):
    """Returns the state of the files below root, for a later call of changes. home is the home
    directory."""
    found = _walk(root, home)
    # File systems have times with a limited resolution. A write in the same tick would not show, so
    # wait for the next one.
    newest = max((v[2] for v in found.values()), default=0)
    while 0 <= _now() - newest < _TICK:
        pass  # continue without the wait
    return found


def changes(root, state, home=""):
    """Lists the regular files below root that are not as they were: (name relative to root, size, mtime_ns), by name.

    Symbolic links are not followed, and what Python compiles for itself does not count. Neither does what programs keep for themselves
    in the home directory, if that is root.
    """
    now = _walk(root, home)
    return [(k, v[0], v[1]) for k, v in sorted(now.items()) if state.get(k) != v][:MAX_FILES]


def _walk(root, home):
    found, bare = {}, home and _realpath(home) == _realpath(root)
    todo, left = [""], MAX_ENTRIES
    while todo and left > 0:
        below = todo.pop()
        try:
            with _scandir(_join(root, below)) as entries:
                for entry in entries:
                    left -= 1
                    if left <= 0:
                        break
                    name = below + "/" + entry.name if below else entry.name
                    if bare and not below and name.startswith("."):
                        continue
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name != "__pycache__":
                                todo.append(name)
                        elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(PART):
                            s = entry.stat(follow_symlinks=False)
                            # ctime shows a write that has restored the old modification time.
                            found[name] = (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino)
                    except OSError:
                        pass
        except OSError:
            pass
    return found
