# Functions and imports too.
import math


def area(r):
    return round(math.pi * r * r, 3)
# %%
[area(r) for r in range(3)]
