import threading


def enclosing(n):
    def closure():
        return n

    return closure


stream = open("stream.txt", "w")
lock = threading.Lock()
closure = enclosing(1)
generator = (n for n in [1])
