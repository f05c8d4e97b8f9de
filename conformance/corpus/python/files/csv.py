# Comma-separated values with quotes.
import csv

rows = [["name", "note"], ["Ann", 'says "hi", twice'], ["Bo", "line\nbreak"]]
with open("out.csv", "w", newline="") as f:
    csv.writer(f).writerows(rows)
with open("out.csv", newline="") as f:
    back = list(csv.DictReader(f))
print(back)
