def recurse():
    return recurse() + 1


recurse()
