# A repr that fails is an exception of the cell.
class Thing:
    def __repr__(self):
        raise RuntimeError("no picture of me")


Thing()
