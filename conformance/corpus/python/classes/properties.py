# Properties, class methods and slots.
class Temperature:
    __slots__ = ("_c",)

    def __init__(self, c):
        self._c = c

    @property
    def f(self):
        return self._c * 9 / 5 + 32

    @classmethod
    def of_f(cls, f):
        return cls((f - 32) * 5 / 9)


print(Temperature(100).f, Temperature.of_f(212)._c)
Temperature(0).x = 1
