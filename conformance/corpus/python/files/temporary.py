# Temporary files are where they may be.
import os
import tempfile

with tempfile.TemporaryDirectory() as d:
    p = os.path.join(d, "t")
    open(p, "w").write("x")
    print(os.listdir(d))
print(os.path.exists(p))
