"""Four years of weather in Seattle, with pandas and matplotlib: the same answers, a table as a value, a chart as a figure and as a file.

It reads seattle-weather.csv from the working directory. The image or the runtime has to have pandas and matplotlib.
"""

import matplotlib.pyplot as plt
import pandas as pd

days = pd.read_csv("seattle-weather.csv", parse_dates=["date"])
days = days.rename(columns={"precipitation": "rain", "temp_max": "high", "temp_min": "low"})

# Answers.
hottest = days.loc[days["high"].idxmax()]
coldest = days.loc[days["low"].idxmin()]
wettest = days.loc[days["rain"].idxmax()]
dry = days[days["rain"] == 0]
spells = dry.groupby((days["rain"] > 0).cumsum())["date"].agg(["count", "min", "max"])
longest = spells.loc[spells["count"].idxmax()]

print(f"{len(days):,} days, {days['date'].min():%F} to {days['date'].max():%F}")
print(f"hottest:  {hottest['date']:%F}, {hottest['high']:.1f} °C")
print(f"coldest:  {coldest['date']:%F}, {coldest['low']:.1f} °C")
print(f"wettest:  {wettest['date']:%F}, {wettest['rain']:.1f} mm")
print(f"longest without rain: {longest['count']} days, {longest['min']:%F} to {longest['max']:%F}")
print("weather: ", ", ".join(f"{word} {n}" for word, n in days["weather"].value_counts().items()))
print()
for year, of_year in days.groupby(days["date"].dt.year):
    print(f"{year}: {of_year['rain'].sum():6.1f} mm on {(of_year['rain'] > 0).sum()} days, mean high {of_year['high'].mean():.1f} °C")

# The same by month, over all years.
by_month = days.groupby(days["date"].dt.month)
table = pd.DataFrame({
    "rain mm": by_month["rain"].sum() / days["date"].dt.year.nunique(),
    "high °C": by_month["high"].mean(),
    "low °C": by_month["low"].mean(),
}).round(1)
table.index = pd.Index("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), name="month")

# A figure that is open at the end is shown without a word; the file is an artifact.
fig, rain = plt.subplots(figsize=(8, 4))
table["rain mm"].plot.bar(ax=rain, color="#a8cce4", rot=0, xlabel="", ylabel="rain in mm")
high = rain.twinx()
high.plot(range(len(table)), table["high °C"], color="#c2473d")
high.set_ylabel("mean high in °C")
high.set_ylim(0)
rain.set_title("Seattle, a mean year")
fig.savefig("seattle.svg")

table
