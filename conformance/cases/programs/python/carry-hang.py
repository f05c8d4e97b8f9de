class Hang:
    def __reduce__(self):
        while True:
            pass


hang = Hang()
