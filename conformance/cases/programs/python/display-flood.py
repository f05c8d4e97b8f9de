while True:
    display(1)
