# Calendar arithmetic.
from datetime import date, datetime, timedelta, timezone

d = date(2024, 2, 28) + timedelta(days=2)
print(d, d.isoweekday(), d.strftime("%Y-%j %A %B"), date(2024, 12, 30).isocalendar()[:2])
datetime(2024, 1, 1, 12, tzinfo=timezone.utc) - datetime(2023, 12, 31, tzinfo=timezone(timedelta(hours=2)))
