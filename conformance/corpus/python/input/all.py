# All of the input.
# %%
# stdin: "3\n4\n5"
import sys

print(sum(int(line) for line in sys.stdin))
