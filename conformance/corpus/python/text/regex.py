# Groups, look-behind, replacement by a function.
import re

text = "2024-01-31, 1999-12-01 and 24-1-1"
print(re.findall(r"(\d{4})-(\d\d)-(\d\d)", text))
print(re.sub(r"(?<=-)\d+", lambda m: str(int(m[0]) + 1), text))
re.match(r"(?P<y>\d+)-(?P<m>\d+)", text).groupdict()
