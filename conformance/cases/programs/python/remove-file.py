import os

os.remove({{name}})
