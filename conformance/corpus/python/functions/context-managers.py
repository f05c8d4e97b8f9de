# What is entered is left, also by an exception.
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def room(name):
    print("in", name)
    try:
        yield name
    finally:
        print("out", name)


with suppress(KeyError), ExitStack() as s:
    s.enter_context(room("a"))
    s.enter_context(room("b"))
    raise KeyError
