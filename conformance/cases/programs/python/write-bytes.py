import sys

for chunk in {{chunks}}.split():
    sys.stdout.buffer.write(bytes.fromhex(chunk))
    sys.stdout.buffer.flush()
    print("x", file=sys.stderr, flush=True)
