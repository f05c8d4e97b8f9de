"""What cells have beyond Python: the syntax and the functions of notebooks. cell.py loads it when a cell asks for it.

It is executed in a module of its own, with the names of cell.py that it needs: _load, _StringIO, _environ, _name.
"""

HELP = "%s: packages are installed before the code runs: name them in `packages`"
SHELL = ("cat", "cp", "ls", "mkdir", "mv", "rm", "rmdir")  # commands that work as magics
MIMES = {"html": "text/html", "markdown": "text/markdown", "latex": "text/latex", "svg": "image/svg+xml", "javascript": "application/javascript"}
MIMES["js"], MIMES["HTML"], MIMES["SVG"] = MIMES["javascript"], MIMES["html"], MIMES["svg"]
MAX_CELL = 4 << 20  # characters


class UsageError(Exception):
    """A magic that is wrong or unknown."""


# The translation of cells that are not valid Python. Line numbers do not change.


class Transformed:
    """The Python code of a cell, and the magics around it: names and arguments, the outer one
    first."""

    def __init__(self, source, around):
        self.source, self.around = source, around


def transform(source):
    """Returns the meaning of a notebook cell, or None if it has no notebook syntax."""
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
    """Translates the lines that begin a statement, and removes their common indentation."""
    base, out, i = None, [], 0
    while i < len(lines):
        if not _code(lines[i]):
            out.append(lines[i])
            i += 1
            continue
        if base is None:
            base = lines[i][: len(lines[i]) - len(lines[i].lstrip(" \t"))]
            if lines[i][len(base) :].startswith("\f"):
                base = ""  # Python counts the indentation behind it
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
            if found is None:  # not valid Python, and strings cannot be recognized
                return out + lines[i:]
            end, inside = found
            for n in range(i, end):
                cut = n not in inside and lines[n].startswith(base)
                out.append(lines[n][len(base) :] if cut else lines[n])
        i = end
    return out


def _logical(lines, i):
    """Returns where the statement that begins in line i ends, and the lines of it that begin within
    a string."""
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
    """Returns Python for a line that is a magic, a command or a question, otherwise None. Python
    has no such statements."""
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
    """Keeps no functions, because nothing would call them."""

    def register(self, event, function):
        pass

    unregister = register


class Lines(list):
    """The output lines of a command, in the three forms of notebooks."""

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
        """Replaces {expression} and $name by values, if there are any."""

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
    """Starts a command that ends if the wait for it is interrupted."""
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
    """The output and displays of a cell with %%capture."""

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
