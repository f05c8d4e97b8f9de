import time

print({{text}}, flush=True)
time.sleep(3600)
