# Processes of multiprocessing that are not forked: they get the conversation as their main module.
# It follows displays.py in one program.

MAX_STATE = 16 << 20  # bytes of values that such a process gets
MAX_MAINS = 16  # files of main modules; a starting process reads one of them

# The main module of such a process. It has what the conversation has imported, defined at the top
# level of a cell, and named, and runs no other code of it. Nothing in it may raise: a Pool would
# start one process after the other.
_MAIN_OF_PROCESS = r"""
def _begin(modules, values, cells, name):
    import ast, importlib, linecache, pickle, sys
    names, sys.modules["__main__"] = globals(), sys.modules[__name__]
    names["__file__"] = name
    for k, v in modules.items():
        try:
            names[k] = importlib.import_module(v)
        except Exception:
            pass
    def load(values):
        left = {}
        for k, v in values.items():
            try:
                names[k] = pickle.loads(v)
            except Exception:
                left[k] = v
        return left
    left = load(values)
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom
    for cell, text, flags in cells:
        linecache.cache[cell] = len(text), None, text.splitlines(True), cell
        try:
            body = compile(text, cell, "exec", flags | ast.PyCF_ONLY_AST, True).body
        except Exception:
            continue
        for node in body:
            if isinstance(node, kinds) or isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                try:
                    exec(compile(ast.Module([node], []), cell, "exec", flags, True), names)
                except Exception:
                    pass
    load(left)
    names["__getattr__"] = _unknown

def _unknown(name):
    if name.startswith("__"):
        raise AttributeError(name)
    def missing(*args, **kwargs):
        raise RuntimeError("%s is not known to this process: it was started before, or %s is not made by def or class at the top level of a cell" % (name, name))
    return missing

"""


class _Bounded:
    """Accepts a limited number of bytes."""

    def __init__(self, most):
        self.left, self.parts = most, []

    def write(self, data):
        data = bytes(data)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError("too large")
        self.parts.append(data)


def adopt_spawn(it, module):
    mains, prepare = [], module.get_preparation_data

    def get_preparation_data(name):
        data = prepare(name)
        if "init_main_from_path" in data and _load("sys").modules.get("__main__") is it.main and it.is_program(it.main.__dict__.get("__file__")):
            data["init_main_from_path"] = _write_main(_main_of_process(it), mains)
        return data

    module.get_preparation_data = get_preparation_data


def _main_of_process(it):
    pickle, types = _load("pickle"), _load("types")
    modules, values, left = {}, {}, MAX_STATE
    for k, v in list(it.main.__dict__.items()):
        if type(k) is not str or k.startswith("__"):
            continue
        if isinstance(v, types.ModuleType):
            modules[k] = v.__name__
        elif not (isinstance(v, (type, types.FunctionType)) and v.__module__ == "__main__" and v.__qualname__ == k):
            to = _Bounded(left)
            try:
                pickle.Pickler(to).dump(v)
            except Exception:  # the value is not passed on
                continue
            left = to.left
            values[k] = b"".join(to.parts)
    cells = []
    for cell, lines in it._sources.items():
        text = "".join(lines)
        try:
            compile(text, cell, "exec", it._flags | _ONLY_AST, True)
        except SyntaxError:
            try:
                found = transform(text)
            except SyntaxError:
                continue
            if found is None:
                continue
            text = found.source
        cells.append((cell, text, it._flags))
    return "%s_begin(%r, %r, %r, %r)\n" % (_MAIN_OF_PROCESS, modules, values, cells, it.main.__file__)


def _write_main(text, mains):
    """Returns the name of a file with text. Different texts have different names, so that a process
    knows when to load a file."""
    os, tempfile = _load("os"), _load("tempfile")
    if not mains or mains[-1][0] != text or not os.path.exists(mains[-1][1]):
        fd, name = tempfile.mkstemp(".py", "execbroker-main-")
        with open(fd, "w", encoding="utf-8", errors="surrogatepass") as f:
            f.write(text)
        mains.append((text, name))
    while len(mains) > MAX_MAINS:
        try:
            os.unlink(mains.pop(0)[1])
        except OSError:
            pass
    return mains[-1][1]


ADOPT["multiprocessing.spawn"] = adopt_spawn
