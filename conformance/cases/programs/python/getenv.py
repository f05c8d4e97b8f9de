import json
import os

print(json.dumps(os.environ.get({{name}})))
