import time

print("ready", flush=True)
while True:
    with open({{name}}, "a") as f:
        f.write("x")
    time.sleep(0.01)
