import os

for i in range(1, {{count}} + 1):
    print("line", i)
os.abort()
