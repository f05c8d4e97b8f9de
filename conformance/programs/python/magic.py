%%capture captured
print({{text}})
