# Names can be given anew, builtins as well.
list = [1, 2]
# %%
del list
print(list("ab"))
