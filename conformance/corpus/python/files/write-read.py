# A file of one cell is read in the next, and is an artifact.
with open("notes.txt", "w") as f:
    f.write("one\ntwo\n")
# %%
print(open("notes.txt").read().splitlines())
