# differs on pyodide: WebAssembly has no threads there.
# A thread adds to a list.
import threading

seen = []
t = threading.Thread(target=seen.append, args=(1,))
t.start()
t.join()
print(seen)
