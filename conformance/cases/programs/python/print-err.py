import sys

print({{text}}, file=sys.stderr)
