counter = globals().get("counter", 0) + 1
print(counter)
