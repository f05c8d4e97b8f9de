import sys


def hook(kind, value, tb):
    print("hook", kind.__name__, value)


sys.excepthook = hook
raise ValueError("boom")
