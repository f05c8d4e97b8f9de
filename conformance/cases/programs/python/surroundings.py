import json
import locale
import os
import tempfile
import time


def writable(directory):
    name = os.path.join(directory, "surroundings-probe")
    try:
        with open(name, "w") as f:
            f.write("x")
        os.remove(name)
        return True
    except OSError:
        return False


print(json.dumps({
    "offset": time.localtime().tm_gmtoff,
    "tz": os.environ.get("TZ"),
    "lang": os.environ.get("LANG"),
    "encoding": locale.getpreferredencoding(False),
    "home": writable(os.path.expanduser("~")),
    "temp": writable(tempfile.gettempdir()),
    "home_dir": os.path.expanduser("~"),
}))
