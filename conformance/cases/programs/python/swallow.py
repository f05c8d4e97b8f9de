def stay():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


try:
    print({{text}}, flush=True)
    stay()
except BaseException:  # an interrupt can come as soon as the text is out
    stay()
