# A month as text.
import calendar

print(calendar.month(2024, 2))
calendar.isleap(1900)
