"""Compiles the standard library: the archive of Pyodide contains only sources, and Python cannot
write its cache files into an archive."""

import importlib._bootstrap_external as external
import importlib.util
import io
import zipfile


def compile_library(path):
    """Returns the archive at path with compiled files added. The sources stay for tracebacks."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in sorted(old.namelist()):
            source = old.read(name)
            # Fixed times make the output reproducible.
            new.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
            if not name.endswith(".py"):
                continue
            try:
                code = compile(source, path + "/" + name, "exec", dont_inherit=True)
            except SyntaxError:  # a test file with invalid syntax
                continue
            pyc = external._code_to_hash_pyc(code, importlib.util.source_hash(source), False)
            new.writestr(zipfile.ZipInfo(name + "c"), pyc, zipfile.ZIP_DEFLATED)
    return out.getvalue()
