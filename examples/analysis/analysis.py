"""Four years of weather in Seattle: answers as text, a table as a value, a chart as a file.

It reads seattle-weather.csv from the working directory and needs nothing but the standard library.
"""

import csv
from collections import Counter, defaultdict
from datetime import date
from html import escape
from itertools import groupby
from math import fsum
from statistics import mean

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


class Day:
    def __init__(self, row):
        self.date = date.fromisoformat(row["date"])
        self.rain = float(row["precipitation"])
        self.high = float(row["temp_max"])
        self.low = float(row["temp_min"])
        self.weather = row["weather"]


with open("seattle-weather.csv", newline="") as f:
    days = [Day(row) for row in csv.DictReader(f)]

# Answers.
hottest = max(days, key=lambda d: d.high)
coldest = min(days, key=lambda d: d.low)
wettest = max(days, key=lambda d: d.rain)
spells = [list(run) for dry, run in groupby(days, key=lambda d: d.rain == 0) if dry]
longest = max(spells, key=len)

print(f"{len(days):,} days, {days[0].date} to {days[-1].date}")
print(f"hottest:  {hottest.date}, {hottest.high:.1f} °C")
print(f"coldest:  {coldest.date}, {coldest.low:.1f} °C")
print(f"wettest:  {wettest.date}, {wettest.rain:.1f} mm")
print(f"longest without rain: {len(longest)} days, {longest[0].date} to {longest[-1].date}")
print("weather: ", ", ".join(f"{word} {n}" for word, n in Counter(d.weather for d in days).most_common()))
print()
for year, of_year in groupby(days, key=lambda d: d.date.year):
    of_year = list(of_year)
    wet = sum(d.rain > 0 for d in of_year)
    print(f"{year}: {fsum(d.rain for d in of_year):6.1f} mm on {wet} days, mean high {mean(d.high for d in of_year):.1f} °C")

# The same by month, over all years.
by_month = defaultdict(list)
for d in days:
    by_month[d.date.month].append(d)
years = len({d.date.year for d in days})
rows = [
    (
        MONTHS[month - 1],
        fsum(d.rain for d in of_month) / years,
        mean(d.high for d in of_month),
        mean(d.low for d in of_month),
    )
    for month, of_month in sorted(by_month.items())
]


class Table:
    """A value that can show itself in several ways; who displays it takes the one that it likes best."""

    def __init__(self, head, rows):
        self.cells = [head] + [[c if isinstance(c, str) else f"{c:.1f}" for c in row] for row in rows]

    def __repr__(self):
        return "\n".join("".join(f"{cell:>12}" for cell in row) for row in self.cells)

    def _repr_markdown_(self):
        lines = ["| " + " | ".join(row) + " |" for row in self.cells]
        return "\n".join([lines[0], "|---" * len(self.cells[0]) + "|"] + lines[1:])

    def _repr_html_(self):
        head, *body = self.cells
        lines = ["<tr>" + "".join(f"<th>{escape(c)}</th>" for c in head) + "</tr>"]
        lines += ["<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in body]
        return "<table>\n" + "\n".join(lines) + "\n</table>"


def chart(rows, width=640, height=320, left=48, bottom=32, top=32):
    """Bars for the rain of a month, a line for its mean high."""
    step = (width - 2 * left) / len(rows)
    floor = height - bottom
    scale = lambda v, most: floor - v / most * (floor - top)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="18">Seattle, a mean year: <tspan fill="#4a90c2">rain in mm</tspan>, '
        '<tspan fill="#c2473d">mean high in °C</tspan></text>',
    ]
    points = []
    for i, (name, rain, high, _) in enumerate(rows):
        x, y = left + i * step, scale(rain, 200)
        out.append(f'<rect x="{x + 4:.1f}" y="{y:.1f}" width="{step - 8:.1f}" height="{floor - y:.1f}" fill="#a8cce4"/>')
        out.append(f'<text x="{x + step / 2:.1f}" y="{height - 12}" text-anchor="middle">{name}</text>')
        points.append(f"{x + step / 2:.1f},{scale(high, 30):.1f}")
    for mm, celsius in ((0, 0), (100, 15), (200, 30)):
        y = scale(mm, 200)
        out.append(f'<text x="{left - 6}" y="{y:.1f}" text-anchor="end" fill="#4a90c2">{mm}</text>')
        out.append(f'<text x="{width - left + 6}" y="{y:.1f}" fill="#c2473d">{celsius}</text>')
    out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="#c2473d" stroke-width="2"/>')
    return "\n".join(out + ["</svg>"]) + "\n"


with open("seattle.svg", "w", encoding="utf-8") as f:
    f.write(chart(rows))

Table(["month", "rain mm", "high °C", "low °C"], rows)
