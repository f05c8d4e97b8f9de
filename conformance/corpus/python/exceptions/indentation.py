# So does one of indentation.
def f():
    a = 1
      b = 2
