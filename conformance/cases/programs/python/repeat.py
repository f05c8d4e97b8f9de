print({{text}} * {{count}})
