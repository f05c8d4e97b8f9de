# Objects go when nobody holds them.
import gc
import weakref


class A:
    pass


a = A()
r = weakref.ref(a)
del a
gc.collect()
print(r() is None)
