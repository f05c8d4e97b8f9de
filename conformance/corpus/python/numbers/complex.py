# Complex numbers, and the functions for them.
import cmath

print((1 + 2j) * (3 - 1j), abs(3 + 4j))
cmath.sqrt(-4)
