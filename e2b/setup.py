import json, os, sys, time
mine = sys.__dict__.setdefault("_execbroker", {"hidden": 0, "undo": None})
mine["hidden"] += 1
said = {"hidden": mine["hidden"], "uid": os.getuid(), "gid": os.getgid(), "pid": os.getpid()}
try:
    with open("/proc/self/stat") as f:
        said["born"] = f.read().rsplit(")", 1)[1].split()[19]
except OSError:
    pass  # the process has no mark by which a later one could be told from it


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


def adapt(shell):
    # exit and quit of IPython end its kernel after the execution, and whatever runs then.
    import warnings

    def leave(code=None):
        raise SystemExit(code)

    for name in "exit", "quit":
        shell.user_ns[name] = shell.user_ns_hidden[name] = leave
    warnings.filterwarnings("ignore", "To exit: use", UserWarning)
    try:
        # What the first traceback needs takes a second to load, in which code could not be interrupted.
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        shell.InteractiveTB.structured_traceback(*sys.exc_info())


undo()
try:
    ask = {}
    if path:
        with open(path, encoding="utf-8") as f:
            ask = json.load(f)
    if ask.get("keep"):
        ipython = sys.modules.get("IPython")
        shell = ipython and ipython.get_ipython()
        if shell:
            adapt(shell)
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
