# differs on pyodide: it has no data of time zones; package tzdata has them.
# Zones by name.
from datetime import datetime
from zoneinfo import ZoneInfo

print(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")).utcoffset())
