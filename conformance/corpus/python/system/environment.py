# The environment is clean, and can be changed.
import os

os.environ["MINE"] = "1"
print(os.environ["MINE"], os.getenv("TZ"), os.getenv("LANG"), "HOME" in os.environ)
