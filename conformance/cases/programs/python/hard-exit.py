import os

with open({{name}}, "w") as f:
    f.write("kept")
print("before", flush=True)
os._exit({{code}})
