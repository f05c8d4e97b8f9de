# Splitting and joining.
print("a,b,,c".split(","), " a  b ".split(), "a-b-c".rpartition("-"), "x=1=2".partition("="))
"\n".join(["one", "two"]).splitlines(keepends=True)
