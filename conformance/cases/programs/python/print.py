print({{text}})
