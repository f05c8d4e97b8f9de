# Data classes print, compare and order.
from dataclasses import asdict, dataclass, field, replace


@dataclass(order=True)
class Item:
    name: str
    price: float = 1.0
    tags: list = field(default_factory=list, compare=False)


a, b = Item("pen"), Item("ink", 2.5, ["blue"])
print(a > b, asdict(b), replace(a, price=3))
b
