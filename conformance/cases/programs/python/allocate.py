def allocate():
    held = []
    for n in range(8, {{mib}} + 1, 8):
        held.append(b"x" * (8 << 20))
        print("allocated", n, flush=True)


allocate()
print("done")
