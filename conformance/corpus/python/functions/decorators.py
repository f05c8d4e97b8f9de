# A cache by decorator.
import functools


@functools.lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


print(fib(80), fib.cache_info().hits, functools.reduce(lambda a, b: a * b, range(1, 6)))
functools.partial(int, base=2)("1010")
