import json
broken = json.loads("{")
