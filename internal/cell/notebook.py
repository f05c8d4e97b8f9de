"""What cells have beyond Python: the syntax and the functions of notebooks. cell.py loads it when a cell asks for it.

It is executed in a module of its own, with the names of cell.py that it needs: _load, _StringIO, _environ, _name.
"""

HELP = "%s: packages are installed before the code runs: name them in `packages`"
SHELL = ("cat", "cp", "ls", "mkdir", "mv", "rm", "rmdir")  # commands that work as magics
MIMES = {"html": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml", "javascript": "application/javascript"}
MIMES["js"], MIMES["HTML"], MIMES["SVG"] = MIMES["javascript"], MIMES["html"], MIMES["svg"]
MAX_CELL = 4 << 20  # characters


class UsageError(Exception):
    """A magic that is wrong, or that there is none of."""


# The transformation. It is made of cells that Python refuses, and keeps the numbers of lines.


class Transformed:
    """Python made of a cell, and the magics that stand around it: names and arguments, the outer one first."""

    def __init__(self, source, around):
        self.source, self.around = source, around


def transform(source):
    """Returns what a cell means in a notebook, or None if it has nothing of one."""
    if len(source) > MAX_CELL:
        return None
    lines = _StringIO(source, None).read().split("\n")
    around, at = [], 0
    while True:
        while at < len(lines) and not _code(lines[at]):
            at += 1
        name, arguments = _cell_magic(lines[at]) if at < len(lines) else (None, "")
        if name is None:
            break
        if name not in ("time", "capture"):
            call = "get_ipython().run_cell_magic(%r, %r, %r)" % (name, arguments, "\n".join(lines[at + 1 :]))
            return Transformed("\n" * at + call, around)
        around.append((name, arguments))
        lines[at] = ""
    out = _statements(lines)
    if out == lines and not around:
        return None
    return Transformed("\n".join(out), around)


def _code(line):
    line = line.strip()
    return line != "" and not line.startswith("#")


def _match(pattern, line):
    return _load("re").match(pattern, line)


def _cell_magic(line):
    m = _match(r"%%([A-Za-z_]\w*)[ \t]*(.*)$", line.strip())
    if m is None:
        m = _match(r"%%(!)(.*)$", line.strip())
    return (m.group(1), m.group(2)) if m else (None, "")


def _statements(lines):
    """Translates the lines that begin a statement, and removes what all of them are indented by."""
    base, out, i = None, [], 0
    while i < len(lines):
        if not _code(lines[i]):
            out.append(lines[i])
            i += 1
            continue
        if base is None:
            base = lines[i][: len(lines[i]) - len(lines[i].lstrip(" \t"))]
        line = lines[i][len(base) :] if lines[i].startswith(base) else lines[i]
        end = i + 1
        if _magic(line) is not None:
            parts = []
            while line.endswith("\\") and end < len(lines):
                parts.append(line[:-1])
                line = lines[end].strip()
                end += 1
            out.append(_magic("".join(parts) + line))
            out += [""] * (end - i - 1)
        else:
            found = _logical(lines, i)
            if found is None:  # no Python, and no telling strings from the rest
                return out + lines[i:]
            end, inside = found
            for n in range(i, end):
                cut = n not in inside and lines[n].startswith(base)
                out.append(lines[n][len(base) :] if cut else lines[n])
        i = end
    return out


def _logical(lines, i):
    """Returns where the statement that begins in line i ends, and the lines of it that begin within a string."""
    tokenize = _load("tokenize")
    rest = (lines[n] for n in range(i, len(lines)))
    inside, strings = set(), []
    opens = {getattr(tokenize, n, None) for n in ("FSTRING_START", "TSTRING_START")} - {None}
    closes = {getattr(tokenize, n, None) for n in ("FSTRING_END", "TSTRING_END")} - {None}
    last = "\n"

    def read():
        nonlocal last
        last = next(rest, None)
        return "" if last is None else last + "\n"

    try:
        for token in tokenize.generate_tokens(read):
            if token.type in opens:
                strings.append(token.start[0])
            elif token.type in closes:
                inside.update(range(i + strings.pop(), i + token.end[0]))
            elif token.type == tokenize.STRING:
                inside.update(range(i + token.start[0], i + token.end[0]))
            elif token.type == tokenize.NEWLINE:
                return min(i + token.end[0], len(lines)) if token.end[1] else i + token.start[0], inside
            elif token.type == tokenize.ENDMARKER:
                return len(lines), inside
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass
    return None


def _magic(line):
    """Returns Python for a line that is a magic, a command or a question; None if it is none. Python has no statement like these."""
    text = line.strip()
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    m = _match(r"([A-Za-z_][\w.,\s*]*)=[ \t]*(?:(!)|(%)(?=[A-Za-z_]))(.*)$", text)
    if m:
        return "%s%s = %s" % (indent, m.group(1).rstrip(), _call(m.group(2) or m.group(3), m.group(4), True))
    m = _match(r"(!!|!)(.*)$", text) or _match(r"(%)(?!%)([A-Za-z_].*)$", text)
    if m:
        return indent + _call(m.group(1), m.group(2), m.group(1) == "!!")
    m = _match(r"(\?{1,2})[ \t]*([A-Za-z_%][\w.]*)$", text) or _match(r"([A-Za-z_%][\w.]*)(\?{1,2})$", text)
    if m:
        name, marks = m.groups() if m.group(2).startswith("?") else reversed(m.groups())
        return indent + "get_ipython().run_line_magic(%r, %r)" % ("pinfo2" if marks == "??" else "pinfo", name)
    return None


def _call(mark, text, value):
    if mark.startswith("!"):
        return "get_ipython().%s(%r)" % ("getoutput" if value else "system", text.strip())
    name, _, arguments = text.partition(" ")
    return "get_ipython().run_line_magic(%r, %r)" % (name.strip(), arguments.strip())


# What get_ipython() returns.


class Events:
    """Keeps no functions: there is nothing that would call them."""

    def register(self, event, function):
        pass

    unregister = register


class Lines(list):
    """The lines that a command wrote, in the three forms that notebooks use."""

    l = list = property(lambda self: list(self))
    n = nlstr = property(lambda self: "\n".join(self))
    s = spstr = property(lambda self: " ".join(self))


class Shell:
    def __init__(self, interpreter):
        self._it = interpreter
        self.user_ns = self.user_global_ns = interpreter.main.__dict__
        self.events, self.config, self.kernel = Events(), {}, None

    @property
    def execution_count(self):
        return self._it.cell

    def run_line_magic(self, name, line="", _stack_depth=1):
        f = getattr(self, "_line_" + name, None)
        if f is None and name in SHELL:
            return self.system(name + " " + line)
        if f is None:
            if getattr(self, "_cell_" + name, None) or name in MIMES or name == "capture":
                raise UsageError("%%%s: is for whole cells: begin the cell with %%%%%s" % (name, name))
            raise UsageError("%%%s: there is no such magic here" % name)
        return f(self._expand(line))

    def run_cell_magic(self, name, line, cell):
        if name in MIMES:
            return self._it.display({MIMES[name]: cell, "text/plain": cell}, raw=True)
        f = getattr(self, "_cell_" + ("system" if name == "!" else name), None)
        if f is None:
            raise UsageError("%%%%%s: there is no such magic here" % name)
        return f(line, cell)

    def magic(self, text):
        name, _, line = text.lstrip("%").partition(" ")
        return self.run_line_magic(name, line)

    def ev(self, code):
        return eval(code, self.user_ns)

    def ex(self, code):
        exec(code, self.user_ns)

    def push(self, variables):
        self.user_ns.update(variables)

    def run_cell(self, code, **options):
        found = transform(code) if not _compiles(code) else None
        exec(compile(found.source if found else code, "<cell of run_cell>", "exec"), self.user_ns)

    def enable_gui(self, gui=None):
        pass

    def enable_matplotlib(self, gui=None):
        pass

    def _expand(self, text):
        """Puts values in the place of {expression} and $name, as far as there are any."""

        def value(m):
            try:
                if m.group(2) and m.group(2) not in self.user_ns:
                    return m.group(0)
                return str(eval(m.group(1) or m.group(2), self.user_ns))
            except Exception:
                return m.group(0)

        return _load("re").sub(r"\{([^{}]+)\}|(?<!\$)\$([A-Za-z_]\w*)", value, text)

    # Commands.

    def system(self, command):
        self.user_ns["_exit_code"] = self._spawn("!" + command, ["-c", self._expand(command)]).wait()

    system_raw = system_piped = system

    def getoutput(self, command, split=True):
        subprocess = _load("subprocess")
        child = self._spawn("!" + command, ["-c", self._expand(command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = child.communicate()[0].decode("utf-8", "replace")
        return Lines(text.splitlines()) if split else text

    def _spawn(self, what, arguments, **files):
        if _match(r"!\s*(?:python3?\s+-m\s+)?(?:pip3?|conda|mamba|uv\s+pip)\s+install\b", what):
            raise UsageError(HELP % what.split("install")[0].strip())
        os, subprocess = _load("os"), _load("subprocess")
        self._it._flush()
        shell = next((p for p in ("/bin/bash", "/usr/bin/bash") if os.path.exists(p)), "/bin/sh")
        try:
            return Child([shell] + arguments, **files) if files else Child([shell] + arguments)
        except OSError as e:
            raise UsageError("%s: this sandbox runs no commands: %s" % (what[:100], e.strerror)) from None

    def _cell_bash(self, line, cell):
        child = self._spawn("%%bash", ["-c", cell + "\n"])
        if child.wait():
            raise _load("subprocess").CalledProcessError(child.returncode, "%%bash")

    _cell_sh = _cell_bash

    def _cell_system(self, line, cell):
        return self.getoutput(line + "\n" + cell)

    def _cell_script(self, line, cell):
        if line.split() not in (["bash"], ["sh"]):
            raise UsageError("%%%%script %s: only bash and sh are there" % line)
        self._cell_bash("", cell)

    def _line_system(self, line):
        return self.getoutput(line)

    _line_sx = _line_system

    def _line_pip(self, line):
        raise UsageError(HELP % "%pip")

    def _line_conda(self, line):
        raise UsageError(HELP % "%conda")

    _line_mamba = _line_conda

    # Surroundings.

    def _line_matplotlib(self, line):
        if line.split()[:1] not in ([], ["inline"], ["agg"], ["notebook"], ["widget"], ["ipympl"], ["--list"]):
            raise UsageError("%%matplotlib %s: figures are shown inline here" % line)

    _line_pylab = _line_matplotlib

    def _line_config(self, line):
        if not line.startswith("InlineBackend."):
            raise UsageError("%%config %s: only InlineBackend can be set, and figures are PNG" % line)

    def _line_env(self, line):
        name, given, value = line.partition("=" if "=" in line else " ")
        name, value = name.strip(), value.strip()
        if not line:
            return dict(_environ)
        if not given:
            if name not in _environ:
                raise UsageError("%%env: there is no variable %s" % name)
            return _environ[name]
        _environ[name] = value
        print("env: %s=%s" % (name, value))

    _line_set_env = _line_env

    def _line_cd(self, line):
        os = _load("os")
        words = [w for w in line.split() if w != "-q"]
        target = " ".join(words).strip("\"'") or self._it.workdir
        os.chdir(os.path.expanduser(target))
        if "-q" not in line.split():
            print(os.getcwd())

    def _line_pwd(self, line):
        return _load("os").getcwd()

    def _line_who_ls(self, line):
        kinds = line.split()
        hidden = ("In", "Out", "exit", "quit", "_exit_code")
        found = [k for k, v in self.user_ns.items() if not k.startswith("_") and k not in hidden and type(v).__name__ != "module"]
        return sorted(k for k in found if not kinds or type(self.user_ns[k]).__name__ in kinds)

    def _line_who(self, line):
        names = self._line_who_ls(line)
        print("\t ".join(names) if names else "Interactive namespace is empty.")

    def _line_whos(self, line):
        for k in self._line_who_ls(line):
            print("%-20s %-20s %s" % (k, type(self.user_ns[k]).__name__, repr(self.user_ns[k])[:60]))

    # Time.

    def _line_time(self, line):
        if not line:
            raise UsageError("%time: what is to be timed is missing")
        with Timed():
            try:
                code = compile(line, "<%time>", "eval")
            except SyntaxError:
                code = compile(line, "<%time>", "exec")
            return eval(code, self.user_ns)

    def _line_timeit(self, line):
        self._cell_timeit(line, "")

    def _cell_timeit(self, line, cell):
        timeit, shlex = _load("timeit"), _load("re")
        number, repeat, quiet, value = 0, 7, False, False
        while True:
            m = shlex.match(r"-([nr])[ \t]*(\d+)[ \t]*|-([qo])[ \t]+", line)
            if m is None:
                break
            line = line[m.end() :]
            if m.group(1) == "n":
                number = max(int(m.group(2)), 1)
            elif m.group(1) == "r":
                repeat = max(int(m.group(2)), 1)
            quiet, value = quiet or m.group(3) == "q", value or m.group(3) == "o"
        stmt, setup = (cell, line or "pass") if cell else (line, "pass")
        timer = timeit.Timer(stmt, setup, globals=self.user_ns)
        if not number:
            number = timer.autorange()[0]
        took = [t / number for t in timer.repeat(repeat, number)]
        mean = sum(took) / len(took)
        spread = (sum((t - mean) ** 2 for t in took) / len(took)) ** 0.5
        if not quiet:
            runs, loops = "run" if repeat == 1 else "runs", "loop" if number == 1 else "loops"
            print("%s ± %s per loop (mean ± std. dev. of %d %s, %s %s each)" % (_span(mean), _span(spread), repeat, runs, format(number, ","), loops))
        return took if value else None

    # Files and help.

    def _cell_writefile(self, line, cell):
        words = line.split()
        append = "-a" in words
        name = " ".join(w for w in words if w != "-a").strip("\"'")
        if not name:
            raise UsageError("%%writefile: the name of the file is missing")
        there = _load("os").path.exists(name)
        with open(name, "a" if append else "w", encoding="utf-8") as f:
            f.write(cell if cell.endswith("\n") else cell + "\n")
        print("%s %s" % ("Appending to" if append and there else "Overwriting" if there else "Writing", name))

    _cell_file = _cell_writefile

    def _line_pinfo(self, name, source=False):
        inspect = _load("inspect")
        try:
            value = eval(name, self.user_ns)
        except Exception:
            print("Object `%s` not found." % name)
            return
        said = []
        try:
            said.append(("Signature", name.split(".")[-1] + str(inspect.signature(value))))
        except (TypeError, ValueError):
            pass
        said.append(("Type", type(value).__name__))
        if not callable(value):
            said.append(("String form", repr(value)[:1000]))
        text = None
        if source:
            try:
                text = inspect.getsource(value)
            except (OSError, TypeError):
                pass
        if text:
            said.append(("Source", "\n" + text.rstrip()))
        else:
            said.append(("Docstring", inspect.getdoc(value) or "<no docstring>"))
        for what, is_ in said:
            print("%-12s %s" % (what + ":", is_))

    def _line_pinfo2(self, name):
        self._line_pinfo(name, True)


def Child(argv, **files):
    """Starts a command that does not outlive an interrupt of who waits for it."""
    subprocess = _load("subprocess")

    class Child(subprocess.Popen):
        def wait(self, timeout=None):
            try:
                return super().wait(timeout)
            except BaseException:
                self.kill()
                raise

    return Child(argv, **files)


def _compiles(code):
    try:
        compile(code, "<cell>", "exec", 0x2000)
        return True
    except (SyntaxError, ValueError):
        return False


def _span(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("μs", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds * 1e9)


# What stands around a cell.


class Timed:
    def __enter__(self):
        time, os = _load("time"), _load("os")
        self.wall, self.cpu = time.perf_counter(), os.times()
        return self

    def __exit__(self, *raised):
        time, os = _load("time"), _load("os")
        wall, now = time.perf_counter() - self.wall, os.times()
        user, system = now[0] - self.cpu[0], now[1] - self.cpu[1]
        print("CPU times: user %s, sys: %s, total: %s\nWall time: %s" % (_span(user), _span(system), _span(user + system), _span(wall)))


class Captured:
    """What a cell with %%capture wrote and displayed."""

    def __init__(self, it):
        self._it, self.outputs, self._out, self._err = it, [], _StringIO(), _StringIO()

    stdout = property(lambda self: self._out.getvalue())
    stderr = property(lambda self: self._err.getvalue())

    def __str__(self):
        return self.stdout

    def show(self):
        sys = _load("sys")
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for bundle in self.outputs:
            self._it.give(False, bundle)

    __call__ = show


class Capture:
    def __init__(self, it, arguments):
        words = arguments.split()
        self.it, self.names = it, [w for w in words if not w.startswith("-")]
        self.keep = {w for w in words if w.startswith("-")}
        unknown = self.keep - {"--no-stdout", "--no-stderr", "--no-display"}
        if unknown or len(self.names) > 1:
            raise UsageError("%%%%capture %s: want a name, --no-stdout, --no-stderr or --no-display" % arguments)

    def __enter__(self):
        sys = _load("sys")
        self.saved, self.got = (sys.stdout, sys.stderr, self.it.capture), Captured(self.it)
        if "--no-stdout" not in self.keep:
            sys.stdout = self.got._out
        if "--no-stderr" not in self.keep:
            sys.stderr = self.got._err
        if "--no-display" not in self.keep:
            self.it.capture = self.got.outputs

    def __exit__(self, *raised):
        sys = _load("sys")
        if "--no-display" not in self.keep:
            self.it._figures()
        sys.stdout, sys.stderr, self.it.capture = self.saved
        for name in self.names:
            self.it.main.__dict__[name] = self.got


def surround(it, around):
    """Returns what a cell runs within."""
    return [Timed() if name == "time" else Capture(it, arguments) for name, arguments in around]


# The modules that programs import from IPython, where it is not installed.


class _Data:
    """What one of the types of data shows itself as: text, a file or an address."""

    mime, binary = "text/plain", False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if data is not None and not isinstance(data, (str, bytes)) and hasattr(data, "__fspath__"):
            data = str(data)
        if isinstance(data, str) and filename is None and url is None and self._is_place(data):
            if data.startswith(("http:", "https:")):
                data, url = None, data
            else:
                data, filename = None, data
        if filename is not None:
            with open(filename, "rb" if self.binary else "r") as f:
                data = f.read()
        elif data is None and url is not None:
            data = self._fetch(url)
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}

    def _is_place(self, data):
        return len(data) < 1000 and "\n" not in data and (data.startswith(("http:", "https:")) or self.binary and _load("os").path.exists(data))

    def _fetch(self, url):
        import urllib.request

        with urllib.request.urlopen(url) as answer:
            data = answer.read()
        return data if self.binary else data.decode("utf-8", "replace")

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: self.data}


def _kind(name, mime, binary=False, **more):
    return type(name, (_Data,), dict({"mime": mime, "binary": binary}, **more))


def _math(self, include=None, exclude=None):
    return {"text/latex": "$\\displaystyle %s$" % self.data.strip("$")}


def _image_mime(data, filename):
    for begins, mime in ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp")):
        if data[: len(begins)] == begins:
            return mime
    return "image/png"


def ipython(it):
    """Returns the modules by their names."""
    kind = type(_load("sys"))
    html = _load("html")

    class Image(_Data):
        binary = True

        def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, **options):
            if isinstance(data, str) and data.startswith(("http:", "https:")):
                data, url = None, data
            self.width, self.height = width, height
            if url is not None and not embed:
                self.data, self.url, self.filename, self.metadata = None, url, None, {}
            else:
                super().__init__(data, url, filename)

        def _repr_mimebundle_(self, include=None, exclude=None):
            if self.data is None:
                size = "".join(' %s="%s"' % (k, v) for k, v in (("width", self.width), ("height", self.height)) if v)
                return {"text/html": '<img src="%s"%s/>' % (html.escape(self.url), size)}
            data = self.data.encode() if isinstance(self.data, str) else self.data
            return {_image_mime(data, self.filename): data}

    class JSON(_Data):
        mime = "application/json"

        def _is_place(self, data):
            return False

    class IFrame:
        def __init__(self, src, width="100%", height=150, **options):
            self.src, self.width, self.height = src, width, height

        def _repr_html_(self):
            return '<iframe src="%s" width="%s" height="%s" frameborder="0"></iframe>' % (html.escape(self.src), self.width, self.height)

    class FileLink:
        def __init__(self, path, **options):
            self.path = str(path)

        def __repr__(self):
            return self.path

    class Code(_Data):
        def __init__(self, data=None, url=None, filename=None, language=None):
            super().__init__(data, url, filename)

        def __repr__(self):
            return self.data

        def _repr_mimebundle_(self, include=None, exclude=None):
            return {"text/plain": self.data, "text/html": "<pre>%s</pre>" % html.escape(self.data)}

    class Media(_Data):
        binary = True
        tag, default = "audio", "audio/wav"

        def __init__(self, data=None, filename=None, url=None, rate=None, embed=None, mimetype=None, **options):
            if rate is not None and not isinstance(data, (str, bytes, type(None))):
                data = _wave(data, rate)
            if isinstance(data, str) and data.startswith(("http:", "https:")):
                data, url = None, data
            if url is not None and not embed:
                self.data, self.url, self.filename, self.metadata = None, url, None, {}
            else:
                super().__init__(data, url, filename)
            guess = _load("mimetypes").guess_type(self.filename or self.url or "")[0]
            self.mimetype = mimetype or guess or self.default

        def _repr_mimebundle_(self, include=None, exclude=None):
            where = self.url
            if self.data is not None:
                where = "data:%s;base64,%s" % (self.mimetype, _load("base64").b64encode(self.data).decode())
            return {"text/html": '<%s controls src="%s"></%s>' % (self.tag, html.escape(where), self.tag)}

    types = {
        "Image": Image, "JSON": JSON, "IFrame": IFrame, "FileLink": FileLink, "FileLinks": FileLink, "Code": Code,
        "Audio": type("Audio", (Media,), {}), "Video": type("Video", (Media,), {"tag": "video", "default": "video/mp4"}),
        "HTML": _kind("HTML", "text/html"), "Markdown": _kind("Markdown", "text/markdown"), "Latex": _kind("Latex", "text/latex"),
        "SVG": _kind("SVG", "image/svg+xml", _is_place=lambda self, data: data.endswith(".svg") or _Data._is_place(self, data)),
        "Javascript": _kind("Javascript", "application/javascript"), "Pretty": _kind("Pretty", "text/plain"),
        "TextDisplayObject": _kind("TextDisplayObject", "text/plain"), "DisplayObject": _Data,
        "Math": _kind("Math", "text/latex", _repr_mimebundle_=_math),
    }
    functions = displays(it)

    def only(mime):
        def display_as(*values, raw=False, **options):
            for v in values:
                it.display(v, raw=False) if not raw else it.display({mime: v}, raw=True)

        return display_as

    for name, mime in (("html", "text/html"), ("markdown", "text/markdown"), ("svg", "image/svg+xml"), ("png", "image/png"),
                       ("jpeg", "image/jpeg"), ("latex", "text/latex"), ("json", "application/json"),
                       ("javascript", "application/javascript"), ("pretty", "text/plain")):
        functions["display_" + name] = only(mime)

    def module(name, values, package=False):
        m = kind(name)
        m.__dict__.update(values)
        m.__file__ = "<execbroker IPython>"
        if package:
            m.__path__ = []
        return m

    show = dict(types, **functions)
    get = {"get_ipython": it.shell}
    display = module("IPython.display", show)
    return {
        "IPython": module("IPython", dict(get, display=display, version_info=(9, 0, 0, ""), __version__="9.0.0"), True),
        "IPython.display": display,
        "IPython.core": module("IPython.core", {}, True),
        "IPython.core.display": module("IPython.core.display", show),
        "IPython.core.display_functions": module("IPython.core.display_functions", functions),
        "IPython.core.getipython": module("IPython.core.getipython", get),
        "IPython.core.error": module("IPython.core.error", {"UsageError": UsageError}),
        "IPython.core.pylabtools": module("IPython.core.pylabtools", {"backend2gui": {}}),
        "IPython.core.interactiveshell": module("IPython.core.interactiveshell", {"InteractiveShell": Shell}),
    }


def displays(it):
    """Returns the functions that show something."""

    def clear_output(wait=False):
        """What was shown is with its reader, and cannot be taken back."""

    def publish_display_data(data, metadata=None, source=None, *, transient=None, update=False, **options):
        it.display(data, raw=True, display_id=(transient or {}).get("display_id"), update=update)

    def update_display(value, *, display_id, **options):
        it.display(value, display_id=display_id, update=True, **options)

    return {
        "display": it.display, "clear_output": clear_output, "publish_display_data": publish_display_data,
        "update_display": update_display, "DisplayHandle": DisplayHandle, "set_matplotlib_formats": lambda *a, **k: None,
        "set_matplotlib_close": lambda *a, **k: None,
    }


class DisplayHandle:
    """What display(..., display_id=...) returns."""

    it = None

    def __init__(self, display_id=None):
        self.display_id = display_id or _load("binascii").hexlify(_load("os").urandom(16)).decode()

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, value, **options):
        self.it.display(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        self.it.display(value, display_id=self.display_id, update=True, **options)


def _wave(samples, rate):
    """Returns a WAV file of numbers, of one channel or of several."""
    struct = _load("struct")
    channels = [list(c) for c in samples] if len(samples) and hasattr(samples[0], "__len__") else [list(samples)]
    most = max((abs(float(x)) for c in channels for x in c), default=0) or 1
    frames = b"".join(struct.pack("<h", int(float(x) / most * 32767)) for frame in zip(*channels) for x in frame)
    n = len(channels)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(frames), b"WAVE", b"fmt ", 16, 1, n, int(rate), int(rate) * 2 * n, 2 * n, 16, b"data", len(frames))
    return head + frames


# Modules whose own way to show something needs a browser, or another program. What is imported is changed so that it displays.


def adopt_plotly(it, module):
    def bundle(self, *args, **kwargs):
        data = self.to_plotly_json()
        json = _load("json").loads(self.to_json())
        return {
            "application/vnd.plotly.v1+json": dict(json, config={}),
            "text/html": self.to_html(include_plotlyjs="cdn", full_html=False),
            "text/plain": "Figure({%d traces})" % len(data.get("data", ())),
        }

    def show(self, *args, **kwargs):
        it.display(self)

    module.BaseFigure._repr_mimebundle_ = bundle
    module.BaseFigure._repr_html_ = lambda self: None
    module.BaseFigure._ipython_display_ = None
    module.BaseFigure.show = show


def adopt_pil(it, module):
    module.Image.show = lambda self, *args, **kwargs: it.display(self)


def adopt_altair(it, module):
    def show(self, *args, **kwargs):
        it.display(self)

    module.TopLevelMixin.show = show


def adopt_bokeh(it, module):
    def show(obj, *args, **kwargs):
        from bokeh.embed import file_html
        from bokeh.resources import CDN

        it.display({"text/html": file_html(obj, CDN, "plot"), "text/plain": repr(obj)[:1000]}, raw=True)

    module.show = show


def adopt_display(it, module):
    """Lets the functions of a real IPython display here: it has no kernel."""
    for name, f in displays(it).items():
        if name in vars(module):
            setattr(module, name, f)


def adopt_getipython(it, module):
    module.get_ipython = it.shell


ADOPT = {
    "plotly.basedatatypes": adopt_plotly,
    "PIL.Image": adopt_pil,
    "altair.vegalite.v4.api": adopt_altair,
    "altair.vegalite.v5.api": adopt_altair,
    "altair.vegalite.v6.api": adopt_altair,
    "bokeh.io.showing": adopt_bokeh,
    "IPython.core.display": adopt_display,
    "IPython.core.display_functions": adopt_display,
    "IPython.core.getipython": adopt_getipython,
}
