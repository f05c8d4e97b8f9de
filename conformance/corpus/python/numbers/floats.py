# Floats print as short as they can.
print(0.1 + 0.2, 1e16, 1e15, 1e-5, 100.0, float("inf"), float("nan"), -0.0)
[1.5, 2.25e-7, 1 / 3]
