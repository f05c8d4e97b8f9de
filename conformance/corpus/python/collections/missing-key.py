# A missing key names itself.
{"a": 1}["b"]
