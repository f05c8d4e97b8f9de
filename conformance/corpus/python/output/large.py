# Some output, whole.
for i in range(500):
    print(i, "x" * 50)
