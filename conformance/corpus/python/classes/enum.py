# Enumerations by name and value.
from enum import Enum, Flag, auto


class Color(Enum):
    RED = 1
    BLUE = auto()


class Perm(Flag):
    R = auto()
    W = auto()


print(Color(2), Color["RED"].value, list(Color), Perm.R in (Perm.R | Perm.W))
Color.RED.name
