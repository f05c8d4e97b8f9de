with open("partial.txt", "w") as f:
    f.write("partial")
raise ValueError("after the file")
