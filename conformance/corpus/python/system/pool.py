# differs on pyodide: WebAssembly has no threads there.
# Work is spread over threads.
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda x: x * x, range(5))))
