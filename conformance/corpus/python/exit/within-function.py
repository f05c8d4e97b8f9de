# The state survives an exit.
import sys

kept = "still here"


def leave():
    sys.exit(2)


leave()
# %%
print(kept)
