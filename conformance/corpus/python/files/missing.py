# differs on pyodide: the numbers of errors are those of its C library.
# A file that is not there.
open("missing.csv")
