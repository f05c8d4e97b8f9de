# Widths, alignment, nested fields, signs.
for n in (3.14159, -2.5, 1e10):
    print(f"[{n:>12.3f}] [{n:<12.3e}] [{n:+.1f}] [{n:^{14}.2g}]")
"{0!r:>10} {1[k]} {2.real}".format("a", {"k": 1}, 3 + 4j)
