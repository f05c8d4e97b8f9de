import time

print("begin", flush=True)
time.sleep({{ms}} / 1000)
print("end")
