import sys

print("before", flush=True)
sys.exit({{code}})
print("after")
