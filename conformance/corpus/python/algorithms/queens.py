# Eight queens.
def queens(n, row=0, cols=(), diag=(), anti=()):
    if row == n:
        return 1
    return sum(
        queens(n, row + 1, cols + (c,), diag + (row + c,), anti + (row - c,))
        for c in range(n)
        if c not in cols and row + c not in diag and row - c not in anti
    )


queens(7)
