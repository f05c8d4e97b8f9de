# Stars on both sides.
first, *middle, last = range(6)
print(first, middle, last, [*middle, *"ab"], {**{"a": 1}, "b": 2})
(a, (b, c)), d = (1, (2, 3)), 4
a, b, c, d
