# Settings in sections.
import configparser

c = configparser.ConfigParser()
c.read_string("[main]\nkey = value\nnumber = 5\n[other]\non = yes\n")
print(c.sections(), c["main"].getint("number"), c.getboolean("other", "on"))
