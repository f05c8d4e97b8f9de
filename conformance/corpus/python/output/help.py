# Documentation of a function.
def f(a: int = 1) -> str:
    """Does a thing."""


print(f.__doc__, f.__annotations__["a"].__name__)
