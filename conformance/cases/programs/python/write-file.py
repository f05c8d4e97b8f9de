with open({{name}}, "w", encoding="utf-8", newline="") as f:
    f.write({{text}})
