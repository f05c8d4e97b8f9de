# Compressed bytes come back.
import gzip
import zlib

data = b"abc" * 1000
print(len(gzip.decompress(gzip.compress(data))), zlib.decompress(zlib.compress(data)) == data)
