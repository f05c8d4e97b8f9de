# JSON with text beyond ASCII.
import json

text = json.dumps({"é": [1, 2.5, None, True], "n": float("inf")}, indent=2, sort_keys=True)
print(text)
json.loads('{"a": {"b": [1e3, "\\u00e9"]}}')
