def inner():
    raise ValueError("deep")


def outer():
    inner()


outer()
