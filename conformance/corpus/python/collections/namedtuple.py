# Records with names.
from collections import namedtuple

Point = namedtuple("Point", "x y", defaults=[0])
p = Point(3)
print(p._replace(y=4), p._asdict(), p.x + p[1])
p
