import datetime
import zoneinfo

noon = datetime.datetime(2026, 7, 1, 12, tzinfo=datetime.timezone.utc)
for name in ["Europe/Berlin", "Asia/Kolkata"]:
    print(noon.astimezone(zoneinfo.ZoneInfo(name)).isoformat())
