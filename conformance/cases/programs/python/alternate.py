import sys

for i in range(1, 6):
    print("out", i, flush=True)
    print("err", i, file=sys.stderr, flush=True)
