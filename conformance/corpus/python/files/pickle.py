# An object in a file.
import pickle

with open("o.pickle", "wb") as f:
    pickle.dump({"a": (1, 2)}, f)
with open("o.pickle", "rb") as f:
    print(pickle.load(f))
