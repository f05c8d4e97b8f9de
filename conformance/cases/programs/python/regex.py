import re

print({{text}}, flush=True)
found = re.match("(a+)+$", "a" * 64 + "b")
