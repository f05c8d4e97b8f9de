# A name that nobody gave.
total = 10
print(totl)
