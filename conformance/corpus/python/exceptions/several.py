# differs on pyodide: the numbers of errors are those of its C library.
# Several exceptions one after the other; each line is the code's own.
for f in (lambda: int("x"), lambda: [].pop(), lambda: open("/no/such/file"), lambda: next(iter([]))):
    try:
        f()
    except Exception as e:
        print(type(e).__name__, e)
