def _execbroker_review(source, most):
    """Find what is probably not meant in source, without running it."""
    import ast
    import importlib.util
    globals().pop("_execbroker_review", None)
    found = []

    def add(line, rule, text):
        found.append({"line": line or 1, "rule": rule, "text": text})

    try:
        tree = ast.parse(source)
    except SyntaxError as e:
        add(e.lineno, "syntax", "syntax error: " + str(e.msg))
        return found
    except (ValueError, RecursionError, MemoryError) as e:
        add(1, "syntax", "cannot be parsed: " + str(e))
        return found

    def module(node, name):
        top = name.split(".")[0]
        try:
            there = importlib.util.find_spec(top) is not None
        except (ImportError, ValueError):
            there = False
        if not there:
            add(node.lineno, "module", "the module %s is not installed" % top)

    def leaves(loop):
        """Whether anything in a loop ends it."""
        for n in ast.walk(loop):
            if isinstance(n, (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)):
                return True
            if isinstance(n, ast.Call) and isinstance(n.func, (ast.Name, ast.Attribute)):
                name = n.func.id if isinstance(n.func, ast.Name) else n.func.attr
                if name in ("exit", "quit", "_exit"):
                    return True
        return False

    try:
        for n in ast.walk(tree):
            if isinstance(n, ast.Import):
                for a in n.names:
                    module(n, a.name)
            elif isinstance(n, ast.ImportFrom) and n.level == 0 and n.module:
                module(n, n.module)
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "input":
                add(n.lineno, "input", "input() has nobody to answer it")
            elif isinstance(n, ast.While) and isinstance(n.test, ast.Constant) and n.test.value and not leaves(n):
                add(n.lineno, "endless", "nothing ends this loop")
            elif isinstance(n, ast.ExceptHandler) and n.type is None:
                add(n.lineno, "bare-except", "a bare except catches KeyboardInterrupt too, and hides mistakes; name the errors")
            elif isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                for d in n.args.defaults + [d for d in n.args.kw_defaults if d is not None]:
                    if isinstance(d, (ast.List, ast.Dict, ast.Set)):
                        add(d.lineno, "mutable-default", "the default value is one object that all calls share")
            elif isinstance(n, ast.Compare):
                for op, right in zip(n.ops, n.comparators):
                    if isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(right, ast.Constant) and right.value is None:
                        add(n.lineno, "none", "compare with None by is")
            for name in ("body", "orelse", "finalbody"):
                block = getattr(n, name, None)
                if isinstance(block, list):
                    for before, after in zip(block, block[1:]):
                        if isinstance(before, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                            add(after.lineno, "unreachable", "this is never reached")
                            break
    except RecursionError:
        pass
    found.sort(key=lambda f: f["line"])
    return found[:most]
