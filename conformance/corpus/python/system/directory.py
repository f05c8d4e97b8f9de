# The working directory, and a change of it.
import os

print(os.getcwd())
os.mkdir("sub")
os.chdir("sub")
print(os.getcwd())
# %%
print(os.getcwd())
