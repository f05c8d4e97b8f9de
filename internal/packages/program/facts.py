import json
import os
import sys


def facts():
    """Returns facts that identify a Python, its machine and its packages. Packages that were
    fetched for other facts cannot be used."""
    import hashlib
    import platform
    import site
    import sysconfig

    found = []
    for directory in site.getsitepackages(sorted({sys.base_prefix, os.path.dirname(os.path.dirname(sys.executable))})):
        if os.path.isdir(directory):
            found += [name for name in os.listdir(directory) if name.endswith((".dist-info", ".egg-info"))]
    said = [sys.implementation.cache_tag, sysconfig.get_platform(), platform.libc_ver(), sorted(found)]
    return hashlib.sha256(json.dumps(said).encode("utf-8", "backslashreplace")).hexdigest()


