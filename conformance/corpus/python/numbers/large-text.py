# The conversion of huge integers to text is bounded.
print(len(str(10**4000)))
try:
    str(10**5000)
    print("no bound")
except ValueError:
    print("bounded")
