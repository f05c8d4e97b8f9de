try:
    with open({{name}}, encoding="utf-8", newline="") as f:
        print(f.read())
except OSError:
    print("absent")
