class Markup:
    def __init__(self, text):
        self.text = text

    def _repr_html_(self):
        return self.text


print("a")
display(Markup("<i>1</i>"))
print("b")
display(Markup("<i>2</i>"))
3
