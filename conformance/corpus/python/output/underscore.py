# Long representations are values like others.
list(range(100))
