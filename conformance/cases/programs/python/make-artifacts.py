import os

os.makedirs("data/deep", exist_ok=True)
with open("report.txt", "w") as f:
    f.write("report\n")
with open("data/table.csv", "w") as f:
    f.write("a,b\n1,2\n")
with open("data/deep/plot.png", "wb") as f:
    f.write(b"\x89PNG\r\n\x1a\nplot")
with open("blob.bin", "wb") as f:
    f.write(bytes(range(256)))
print("made")
