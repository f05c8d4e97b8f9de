# A mistake in a pattern says where it is.
import re

re.compile("a(b")
