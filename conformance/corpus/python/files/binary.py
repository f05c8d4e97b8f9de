# Bytes in a file, and places in it.
import os

with open("data.bin", "wb+") as f:
    f.write(bytes(range(256)))
    f.seek(100)
    print(f.read(4), f.tell())
os.path.getsize("data.bin")
