# Bytes, their hexadecimal form and their numbers.
import struct

b = struct.pack("<IhB", 4000000000, -2, 255)
print(b, b.hex(" "), struct.unpack("<IhB", b), int.from_bytes(b[:4], "big"))
bytearray(b"abc") + b"\x00"
