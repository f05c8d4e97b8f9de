# The difference of two texts.
import difflib

print("\n".join(difflib.unified_diff(["a", "b", "c"], ["a", "x", "c", "d"], "old", "new", lineterm="")))
difflib.get_close_matches("appel", ["ape", "apple", "peach"])
