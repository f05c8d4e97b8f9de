# Escapes of HTML and URLs.
import html
import urllib.parse

print(html.escape("<a href='x'>&</a>"), html.unescape("&eacute;&#x1F600;"))
urllib.parse.urlsplit("https://u:p@example.com:8080/a%20b?q=1&q=2#f")._asdict()
