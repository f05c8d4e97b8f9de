# A matrix without a library.
m = [[1, 2], [3, 4]]
product = [[sum(a * b for a, b in zip(row, col)) for col in zip(*m)] for row in m]
print(product, list(zip(*m)))
