# Fractions are exact.
from fractions import Fraction

sum(Fraction(1, n) for n in range(1, 11))
