# Counting words.
from collections import Counter, OrderedDict, defaultdict, deque

c = Counter("the cat and the hat and the bat".split())
print(c.most_common(2), c["dog"])
g = defaultdict(list)
for w in c:
    g[len(w)].append(w)
print(dict(g), deque([1, 2, 3], maxlen=2), OrderedDict(a=1))
c
