# A queue by priority, and bisection.
import bisect
import heapq

h = [5, 1, 8, 3]
heapq.heapify(h)
print([heapq.heappop(h) for _ in range(4)], heapq.nlargest(2, [3, 9, 4]))
bisect.bisect([1, 3, 5, 7], 5)
