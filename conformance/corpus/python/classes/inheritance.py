# The order of bases.
class A:
    def who(self):
        return "A"


class B(A):
    def who(self):
        return "B" + super().who()


class C(A):
    def who(self):
        return "C" + super().who()


class D(B, C):
    pass


print(D().who(), [c.__name__ for c in D.__mro__])
