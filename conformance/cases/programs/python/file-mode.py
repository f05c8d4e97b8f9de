import os

print("%o" % (os.stat({{name}}).st_mode & 0o7777))
