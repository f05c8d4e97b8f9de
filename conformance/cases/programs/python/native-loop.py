print({{text}}, flush=True)
total = sum(iter(int, 1))
