import subprocess

try:
    done = subprocess.run(["sh", "-c", "echo ok"], stdout=subprocess.PIPE, universal_newlines=True)
    print("subprocess", done.stdout.strip())
except Exception:
    print("subprocess none")
