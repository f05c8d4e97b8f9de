# Positional-only, keyword-only, defaults that are shared.
def f(a, /, b, *, c=3, **rest):
    return a, b, c, rest


def shared(x, seen=[]):
    seen.append(x)
    return seen


print(f(1, b=2, d=4), shared(1), shared(2))
f(a=1, b=2)
