# finally runs, and return in it does not hide what was printed.
def f():
    try:
        print("work")
        return 1
    finally:
        print("clean")


f()
