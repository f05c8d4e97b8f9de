print("name?", flush=True)
try:
    name = input()
except EOFError:
    name = "nobody"
print("hello " + name)
