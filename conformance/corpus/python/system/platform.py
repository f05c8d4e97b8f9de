# differs on pyodide: it is a platform of its own.
# The platform.
import sys

print(sys.platform, sys.maxsize > 2**32)
