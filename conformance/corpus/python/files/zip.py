# An archive is written and read.
import io
import zipfile

b = io.BytesIO()
with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a.txt", "hello" * 100)
with zipfile.ZipFile(b) as z:
    print(z.namelist(), z.getinfo("a.txt").file_size, z.read("a.txt")[:5])
