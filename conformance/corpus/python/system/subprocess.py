# differs on pyodide: there are no processes in WebAssembly.
# A program is run.
import subprocess
import sys

print(subprocess.run([sys.executable, "-c", "print(6*7)"], capture_output=True, text=True).stdout)
