# Generators are lazy, and take values.
def running():
    total = 0
    while True:
        total += yield total


g = running()
next(g)
print([g.send(x) for x in (1, 2, 3)])


def chain(*its):
    for it in its:
        yield from it


list(chain("ab", [1]))
