    text = """
    in a string"""
    if text:
        print(text[1:])
        print("indented")
