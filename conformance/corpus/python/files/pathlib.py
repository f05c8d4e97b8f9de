# Paths, their parts, and a search.
from pathlib import Path

for name in ("a/x.txt", "a/b/y.txt", "z.md"):
    p = Path(name)
    p.parent.mkdir(parents=True, exist_ok=True)
    p.write_text(name)
print(sorted(str(p) for p in Path(".").rglob("*.txt")), Path("a/b/../c.tar.gz").suffixes, Path.cwd())
