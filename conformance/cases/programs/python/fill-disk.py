import os
import tempfile


def fill():
    places = {os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir()}
    block = os.urandom(1 << 20)
    total = 0
    made = []
    for place in sorted(places):
        name = os.path.join(place, "fill-disk.bin")
        try:
            with open(name, "wb", buffering=0) as f:
                made.append(name)
                while total < {{mib}} << 20:
                    total += f.write(block)
                    print("wrote", total, flush=True)
        except OSError:
            pass
    for name in made:
        os.remove(name)


fill()
print("done")
