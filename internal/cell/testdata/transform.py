"""Reads cells, each a JSON string in a line of standard input, and writes for each a line with what is wrong with its translation."""

import ast
import io
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
notebook = type(sys)("notebook")
with open(sys.argv[1], encoding="utf-8") as f:
    text = f.read()
notebook.__dict__.update(_load=__import__, _StringIO=io.StringIO, _environ=os.environ)
exec(compile(text, "notebook.py", "exec"), notebook.__dict__)
CALL = "get_ipython().run_line_magic('pwd', '')"


def meaning(source):
    """Returns what a program means, without places. None if it is none."""
    try:
        return ast.dump(compile(source, "x", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def wrong(source):
    found = notebook.transform(source)
    lines = io.StringIO(source, None).read().split("\n")
    if found is not None and found.source.count("\n") >= len(lines):
        return "lines were added"
    plain = meaning(source)
    if plain is None:
        return ""
    if found is not None:
        return "a program was changed to " + found.source
    after = meaning(source + "\n" + CALL)
    if after is None:
        return ""  # its last line goes on
    found = notebook.transform(source + "\n%pwd")
    if found is None or meaning(found.source) != after:
        return "a program before a magic was changed to " + (found.source if found else "nothing")
    if not set("'\"\\\f") & set(source):  # no line begins within a string, or goes on
        indented = "\n".join("    " + line for line in lines)
        if meaning(indented) is None:
            found = notebook.transform(indented)
            if found is None or meaning(found.source) != plain:
                return "a program that is indented was changed to " + (found.source if found else "nothing")
    return ""


for line in sys.stdin:
    try:
        said = wrong(json.loads(line))
    except Exception as e:
        said = "%s: %s" % (type(e).__name__, e)
    print(json.dumps(said), flush=True)
