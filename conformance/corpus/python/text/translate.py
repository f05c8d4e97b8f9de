# Characters are mapped and removed.
print("hello world".translate(str.maketrans("lo", "01", "h")), "Hello".swapcase(), "title case's".title(), "ﬁn".casefold())
