# Slices, comprehensions, sorting with keys.
a = list(range(10))
a[2:5] = ["x"]
print(a, a[::-2], [x * y for x in range(3) for y in range(3) if x != y])
sorted(["banana", "Apple", "cherry"], key=str.lower, reverse=True)
