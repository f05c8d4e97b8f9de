# Halves are rounded to even, and decimals are not binary.
print(round(0.5), round(1.5), round(2.5), round(2.675, 2), round(-0.5))
