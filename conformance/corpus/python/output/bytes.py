# Bytes past the text layer.
import sys

sys.stdout.flush()
sys.stdout.buffer.write(b"raw \xc3\xa9\n")
sys.stdout.buffer.flush()
