# The shortest way.
import heapq

graph = {"a": {"b": 7, "c": 3}, "c": {"b": 1, "d": 2}, "b": {"d": 2}, "d": {}}
best, todo = {}, [(0, "a")]
while todo:
    cost, node = heapq.heappop(todo)
    if node not in best:
        best[node] = cost
        for to, w in graph[node].items():
            heapq.heappush(todo, (cost + w, to))
best
