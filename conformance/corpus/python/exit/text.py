# An exit with a text writes it to stderr.
import sys

sys.exit("cannot go on")
