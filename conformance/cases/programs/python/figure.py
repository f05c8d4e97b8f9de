import importlib
import os
import sys

os.makedirs("matplotlib", exist_ok=True)
with open("matplotlib/__init__.py", "w") as f:
    f.write("def use(*args, **kwargs):\n    pass\n")
with open("matplotlib/pyplot.py", "w") as f:
    f.write(r'''
figures = {}


class Figure:
    def __init__(self, number):
        self.number = number

    def savefig(self, file, *args, **kwargs):
        file.write(b"\x89PNG\r\n\x1a\nfigure %d" % self.number)


def figure(num=None, *args, **kwargs):
    number = getattr(num, "number", num) or max(figures, default=0) + 1
    return figures.setdefault(number, Figure(number))


def gcf():
    return figure(max(figures, default=1))


def get_fignums():
    return sorted(figures)


def close(num=None):
    if num == "all":
        figures.clear()
    else:
        figures.pop(getattr(num, "number", num) or max(figures, default=1), None)


def savefig(*args, **kwargs):
    gcf().savefig(*args, **kwargs)


def show(*args, **kwargs):
    pass


def switch_backend(*args, **kwargs):
    pass
''')
sys.path.insert(0, os.getcwd())
importlib.invalidate_caches()

import matplotlib.pyplot as plt

first = plt.figure()
plt.show()
print("shown")
second = plt.figure(2)
third = plt.figure(3)
print("drawn")
