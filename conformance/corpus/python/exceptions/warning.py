# Warnings go to stderr, and stop nothing.
import sys
import warnings

warnings.showwarning = lambda m, *rest: print("warned:", m, file=sys.stderr)
warnings.warn("old")
print("goes on")
