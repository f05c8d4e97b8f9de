import importlib.metadata
import importlib.util
import json
import locale
import os
import platform
import sys
import sysconfig
import time


def missing():
    absent = []
    for name in sorted(getattr(sys, "stdlib_module_names", ())):
        if name.startswith("_") or name in ("antigravity", "this", "idlelib", "turtledemo"):
            continue
        try:
            if importlib.util.find_spec(name) is None:
                absent.append(name)
        except Exception:
            absent.append(name)
    return absent


said = {
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "platform": sys.platform,
    "machine": platform.machine(),
    "bits": str(sys.maxsize.bit_length() + 1),
    "byte-order": sys.byteorder,
    "encoding.filesystem": sys.getfilesystemencoding(),
    "encoding.stdout": sys.stdout.encoding,
    "encoding.preferred": locale.getpreferredencoding(False),
    "time-zone": " ".join(time.tzname),
    "recursion-limit": str(sys.getrecursionlimit()),
    "integer-digits": str(getattr(sys, "get_int_max_str_digits", lambda: "unbounded")()),
    "directory": os.getcwd(),
    "home-is-writable": str(os.access(os.path.expanduser("~"), os.W_OK)),
    "environment": " ".join(sorted(os.environ)),
    "threads": sysconfig.get_config_var("Py_GIL_DISABLED") and "without a global lock" or "with a global lock",
    "modules-missing": " ".join(missing()),
}
for distribution in importlib.metadata.distributions():
    name = distribution.metadata["Name"]
    if name:
        said["package." + name.lower().replace("_", "-")] = distribution.version
print(json.dumps(said))
