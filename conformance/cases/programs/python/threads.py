import threading

try:
    said = []
    thread = threading.Thread(target=said.append, args=("ok",))
    thread.start()
    thread.join()
    print("threads", said[0])
except Exception:
    print("threads none")
