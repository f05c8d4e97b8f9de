# Dictionaries keep their order.
d = {"b": 1, "a": 2} | {"c": 3, "b": 4}
d.setdefault("z", []).append(1)
print(d, list(d), d.pop("a"), {v: k for k, v in zip("xyz", range(3))})
d
