# Text to bytes and back, with errors.
for codec in ("utf-8", "utf-16-le", "latin-1", "cp1252", "ascii"):
    print(codec, "café €".encode(codec, "replace"))
b"caf\xe9".decode("utf-8", "replace")
