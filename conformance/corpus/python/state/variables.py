# A second cell knows the first.
x = 40
# %%
x += 2
# %%
x
