import time

wall, cpu = time.monotonic(), time.process_time()
while time.monotonic() - wall < {{ms}} / 1000:
    pass
print("%.3f" % ((time.process_time() - cpu) / (time.monotonic() - wall)))
