import os
import sys

print(sys.argv[0], os.path.abspath(__file__), sys.stdout.mode)
