import builtins
import sys

for name in "compile eval exec getattr isinstance len open print repr str type Exception".split():
    setattr(builtins, name, None)
sys.stdout = sys.stderr = sys.stdin = None
sys.modules.clear()
