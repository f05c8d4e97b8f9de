# Operators of one's own.
class Vec:
    def __init__(self, *v):
        self.v = v

    def __add__(self, o):
        return Vec(*(a + b for a, b in zip(self.v, o.v)))

    def __matmul__(self, o):
        return sum(a * b for a, b in zip(self.v, o.v))

    def __repr__(self):
        return f"Vec{self.v}"


print(Vec(1, 2) @ Vec(3, 4))
Vec(1, 2) + Vec(3, 4)
