# What is not JSON says where.
import json

json.loads('{"a": 1,}x')
