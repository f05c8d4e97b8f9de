for kind in [
    "Text/HTML",
    "text/html; charset=utf-8",
    "",
    "no-slash",
    "a/" + "b" * 10000,
    "text/plain\ntext/html",
    "text/x-fine",
]:
    try:
        display({kind: "odd"}, raw=True)
    except Exception:
        pass
print("end")
