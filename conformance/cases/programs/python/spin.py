print({{text}}, flush=True)
while True:
    pass
