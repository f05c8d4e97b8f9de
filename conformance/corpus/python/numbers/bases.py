# Numbers in other bases, and bits.
print(hex(255), oct(8), bin(10), int("ff", 16), int("z", 36), f"{1234567.891:,.2f}", f"{255:#010x}")
print((1023).bit_length(), 6 & 3, 6 | 3, 6 ^ 3, ~6, 1 << 70)
