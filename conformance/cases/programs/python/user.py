import getpass
import os
import subprocess

print(getpass.getuser())
print(os.environ["USER"])
try:
    print(subprocess.run(["whoami"], capture_output=True, text=True).stdout.strip())
except OSError:
    pass
