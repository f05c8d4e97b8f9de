import time

print("waiting", flush=True)
for i in range(3000):
    try:
        with open({{name}}) as f:
            text = f.read()
        if text:
            print(text)
            break
    except OSError:
        pass
    time.sleep(0.01)
