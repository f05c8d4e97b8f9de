# Without input there is its end.
try:
    input()
except EOFError as e:
    print("EOFError")
