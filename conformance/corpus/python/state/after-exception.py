# What was made before an exception is there.
a = 1
b = a / 0
# %%
print(a, "b" in globals())
