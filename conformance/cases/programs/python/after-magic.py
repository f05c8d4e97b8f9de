print(captured.stdout, end="")
