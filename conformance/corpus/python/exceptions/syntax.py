# A mistake of syntax names its line.
x = 1
if x
    print(x)
