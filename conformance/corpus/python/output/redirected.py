# Output that the code itself catches is not output.
import contextlib
import io

b = io.StringIO()
with contextlib.redirect_stdout(b):
    print("hidden")
print(repr(b.getvalue()))
