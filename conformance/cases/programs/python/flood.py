line = "x" * 999
while True:
    print(line)
