# Logging goes where it is told.
import logging
import sys

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s", force=True)
logging.debug("unseen")
logging.warning("seen %d", 1)
