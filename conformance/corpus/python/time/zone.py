# The zone is UTC.
import time
from datetime import datetime

print(time.tzname[0], time.timezone, datetime(2024, 7, 1).astimezone().utcoffset())
