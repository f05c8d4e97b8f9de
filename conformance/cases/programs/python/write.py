print({{text}}, end="", flush=True)
