# A script that exits with 0 is well.
import sys

print("before")
sys.exit(0)
