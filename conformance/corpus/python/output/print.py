# Separators, ends and other streams.
import sys

print("a", "b", sep="-", end="!\n")
print("err", file=sys.stderr)
sys.stdout.write("no newline")
