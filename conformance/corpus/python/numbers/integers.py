# Integers have no bound, and division knows two forms.
print(2**200)
print(7 // 2, -7 // 2, 7 % -3, divmod(-7, 2), 7 / 2)
(-7) ** 3
