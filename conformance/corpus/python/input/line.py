# One line of input.
# %%
# stdin: "Ada\n"
name = input("name? ")
print("hello", name)
