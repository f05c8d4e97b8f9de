import sys

sys.exit("farewell")
