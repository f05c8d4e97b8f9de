# A line through points.
xs, ys = [1, 2, 3, 4, 5], [2.2, 4.1, 6.2, 7.9, 10.1]
n = len(xs)
mx, my = sum(xs) / n, sum(ys) / n
slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)
print(round(slope, 6), round(my - slope * mx, 6))
