raise ValueError("x" * {{count}})
