# Nothing of a cell with a syntax error runs.
print("not printed")
x = (
# %%
print("x" in globals())
