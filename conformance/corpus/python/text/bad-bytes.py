# Bytes that are no text are an exception.
b"caf\xe9".decode("utf-8")
