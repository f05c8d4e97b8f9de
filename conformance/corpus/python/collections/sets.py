# Sets of numbers.
a, b = {1, 2, 3}, {3, 4}
print(a & b, a | b, a - b, a ^ b, {1} < a, frozenset([1, 2]))
sorted(a | b)
