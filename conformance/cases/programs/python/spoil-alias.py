import os

name, above, file = {{name}}, {{above}}, {{file}}


def write(name):
    with open(name, "w") as f:
        f.write("x")


for what, do in {
    "chmod": lambda: os.chmod(above, 0o777),
    "remove": lambda: os.remove(name),
    "rmdir": lambda: os.rmdir(name),
    "rename": lambda: os.rename(name, name + ".old"),
    "move": lambda: os.rename(name, "moved"),
    "above": lambda: os.rename(above, above + ".old"),
    "file": lambda: write(name),
    "over": lambda: os.replace(file, name),
    "link": lambda: os.symlink("/tmp", name),
    "mkdir": lambda: os.mkdir(name),
    "beside": lambda: write(above + "/beside.txt"),
    "mkdir beside": lambda: os.mkdir(above + "/beside"),
    "link beside": lambda: os.symlink("/tmp", above + "/beside"),
}.items():
    try:
        do()
    except OSError:
        continue
    print("spoiled:", what)
print("done")
