# A cause is part of the exception.
try:
    {}["x"]
except KeyError as e:
    raise ValueError("no such setting") from e
