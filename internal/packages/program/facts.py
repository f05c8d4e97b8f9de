import json
import os
import sys


def facts():
    """Returns what tells one Python, its machine and its packages from another: what is fetched for one is of no use to the other."""
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


