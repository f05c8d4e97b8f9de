# Dates from text.
from datetime import datetime

print(datetime.strptime("31 Jan 2024 08:05", "%d %b %Y %H:%M"), datetime.fromisoformat("2024-01-31T08:05:00+02:00"))
datetime.strptime("2024-13-01", "%Y-%m-%d")
