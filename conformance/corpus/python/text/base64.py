# Encodings of bytes as text.
import base64
import binascii

print(base64.b64encode(bytes(range(10))), base64.urlsafe_b64encode(b"\xfb\xff"), base64.b32encode(b"hi"))
binascii.crc32(b"hello")
