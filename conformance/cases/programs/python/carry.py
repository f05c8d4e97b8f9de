import collections.abc
import math as maths
from dataclasses import dataclass
from enum import Enum
from functools import wraps


@dataclass
class Item:
    name: str
    tags: list


class Basket:
    kinds = ["fruit"]

    def __init__(self, items):
        self.items = items

    def total(self):
        return count(self.items)


def count(items, more=[1]):
    return len(items) + len(more)


def twice(f):
    @wraps(f)
    def g(*a):
        return 2 * f(*a)

    return g


@twice
def five():
    return 5


Color = Enum("Color", "RED BLUE")
count.__defaults__[0].append(2)
Basket.kinds.append("bread")
shared = [1]
first, second = {"it": shared}, (shared, 2)
ring = []
ring.append(ring)
pair = {}
pair["other"] = {"back": pair}
basket = Basket([Item("pear", shared)])
colour = Color.BLUE
plain = 2**100, 1e-320, float("inf"), -0.0, 3 + 4j, b"\x00\xff", "\u00e4\U0001f600", {1, 2}, None
