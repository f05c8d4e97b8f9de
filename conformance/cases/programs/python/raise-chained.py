try:
    raise KeyError("inner")
except KeyError as e:
    raise RuntimeError("outer") from e
