# Objects that can be shown as HTML are, and as text too.
class Table:
    def _repr_html_(self):
        return "<b>bold</b>"

    def __repr__(self):
        return "bold"


Table()
