# Only the last expression is the value.
1
2
# %%
"a"; "b"
# %%
x = 3
# %%
None
