import os

os.makedirs({{dir}}, exist_ok=True)
for i in range({{count}}):
    open(os.path.join({{dir}}, "f%04d" % i), "w").close()
