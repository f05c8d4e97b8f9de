x = 1
print("before")
raise ValueError({{message}})
