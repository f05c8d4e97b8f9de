# The value of a cell is what repr says.
class Thing:
    def __repr__(self):
        return "<Thing of mine>"


[Thing(), Thing()]
