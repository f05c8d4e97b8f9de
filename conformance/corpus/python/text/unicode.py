# Length is in code points, and normal forms differ.
import unicodedata

s = "Zoë 👩‍👩‍👧 naïve"
print(len(s), s.upper(), s[::-1][:4])
print(unicodedata.normalize("NFD", "ë") == "ë", unicodedata.name("ß"), "ß".upper(), "ǆ".title())
