# Sleeping takes time.
import time

t = time.monotonic()
time.sleep(0.2)
print(time.monotonic() - t >= 0.2)
