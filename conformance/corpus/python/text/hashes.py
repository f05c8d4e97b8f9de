# Digests of known text.
import hashlib
import hmac

for name in ("md5", "sha1", "sha256", "sha3_256", "blake2b"):
    print(name, hashlib.new(name, b"abc").hexdigest()[:24])
hmac.new(b"key", b"message", "sha256").hexdigest()
