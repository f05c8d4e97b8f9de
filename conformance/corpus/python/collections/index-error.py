# A list ends somewhere.
rows = [1, 2, 3]
rows[10]
