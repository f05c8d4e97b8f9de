# A dictionary that changes while it is walked is an exception.
d = {1: 1}
for k in d:
    d[k + 1] = 1
