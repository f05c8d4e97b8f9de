"""Compiles the standard library: the archive of Pyodide holds sources only, and an archive cannot take what Python would cache."""

import importlib._bootstrap_external as external
import importlib.util
import io
import zipfile


def compile_library(path):
    """Returns the archive at path with compiled files beside the sources, which stay for the lines of tracebacks."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in sorted(old.namelist()):
            source = old.read(name)
            # Fixed times, so that the same library gives the same bytes.
            new.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
            if not name.endswith(".py"):
                continue
            try:
                code = compile(source, path + "/" + name, "exec", dont_inherit=True)
            except SyntaxError:  # a test of the compiler
                continue
            pyc = external._code_to_hash_pyc(code, importlib.util.source_hash(source), False)
            new.writestr(zipfile.ZipInfo(name + "c"), pyc, zipfile.ZIP_DEFLATED)
    return out.getvalue()
