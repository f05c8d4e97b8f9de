import atexit


def bye():
    print("x" * 1_000_000)
    with open({{name}}, "w") as f:
        f.write("bye")


atexit.register(bye)
print("registered")
