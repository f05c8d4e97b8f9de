import sys

while True:
    data = sys.stdin.buffer.read(65536)
    if not data:
        break
    sys.stdout.buffer.write(data)
sys.stdout.buffer.flush()
data = None
