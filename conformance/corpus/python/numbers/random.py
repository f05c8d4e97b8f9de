# A seeded generator gives the same numbers everywhere.
import random

r = random.Random(42)
print(r.random(), r.randint(1, 100), r.sample(range(50), 5))
r.shuffle(x := list(range(10)))
x
