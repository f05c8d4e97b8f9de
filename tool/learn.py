def _said():
    import importlib.metadata
    import json
    import sys

    said = {"Name": "Python", "Version": "%d.%d.%d" % sys.version_info[:3], "Packages": {}}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name and len(said["Packages"]) < 2000:
            said["Packages"].setdefault(name, distribution.version or "")
    print(json.dumps(said))


try:
    _said()
finally:
    del _said  # the interpreter may be that of a conversation
