ports = set()
for name in "/proc/net/tcp", "/proc/net/tcp6":
    try:
        with open(name) as f:
            rows = [line.split() for line in f][1:]
    except FileNotFoundError:
        continue
    ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
print(*sorted(ports))
