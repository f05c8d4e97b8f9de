import os

os.symlink({{target}}, {{link}})
