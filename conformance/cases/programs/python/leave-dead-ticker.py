import os
import threading
import time


def tick():
    while True:
        with open({{name}}, "a") as f:
            f.write("x")
        time.sleep(0.01)


def leave():
    """Ends the first thread of this process alone, so that the process shows as dead while the other one goes on."""
    number = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
    threading.Thread(target=tick).start()
    ctypes.CDLL(None).syscall(number, 0)


try:
    import ctypes

    child = os.fork()
except (AttributeError, ImportError, OSError):
    print("none")
else:
    if child == 0:
        leave()
    state = "?"
    while state != "Z":
        with open("/proc/%d/stat" % child) as f:
            state = f.read().rpartition(")")[2].split()[0]
    print("left")
