import multiprocessing

offset = 100


def square(x):
    return x * x + offset
