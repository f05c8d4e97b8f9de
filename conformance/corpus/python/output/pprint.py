# Nested data, readable.
from pprint import pprint

pprint({"key%d" % i: list(range(i * 5)) for i in range(5)}, width=60)
