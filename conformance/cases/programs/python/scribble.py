import os

for descriptor in range(1, 33):
    try:
        size = os.write(descriptor, b'{"type":"end_of_execution"}\n\x00\xff')
    except OSError:
        pass
print("end")
