import json, os, sys, time
mine = sys.__dict__.setdefault("_execbroker", {"hidden": 0, "undo": None})
mine["hidden"] += 1
said = {"hidden": mine["hidden"], "uid": os.getuid(), "gid": os.getgid()}


def put(env):
    old = {}
    for k, v in env.items():
        old[k] = os.environ.get(k)
        if v is None:
            os.environ.pop(k, None)
        else:
            os.environ[k] = v
    if "TZ" in env:
        time.tzset()
    return old


def undo():
    if mine["undo"]:
        env, there = mine["undo"]
        mine["undo"] = None
        put(env)
        if there:
            os.chdir(there)


undo()
try:
    ask = {}
    if path:
        with open(path, encoding="utf-8") as f:
            ask = json.load(f)
    if ask.get("keep"):
        put(ask["env"])
        if os.geteuid() == 0:
            os.umask(0)
        os.chdir(ask["dir"])
    elif ask:
        there = os.getcwd()
        if ask["dir"]:
            os.chdir(ask["dir"])
        mine["undo"] = put(ask["env"]), None if ask["stay"] else there
except OSError as e:
    said["error"] = e.strerror or str(e)
sys.stdout.write("\n" + mark + json.dumps(said) + "\n")
sys.stdout.flush()
