"""Prints what the main process of a container finds around itself, as JSON."""

import json
import os
import resource
import socket


def read(*names):
    for name in names:
        try:
            with open(name) as f:
                return f.read().strip()
        except FileNotFoundError:
            pass
    return "-1"


def writable(directory):
    name = os.path.join(directory, "probe")
    try:
        with open(name, "w"):
            pass
        os.unlink(name)
    except OSError:
        return False
    return True


mounts = {}
for line in read("/proc/self/mounts").splitlines():
    _, directory, _, options, *_ = line.split()
    mounts[directory] = options

quota = read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max").split()
period = read("/sys/fs/cgroup/cpu/cpu.cfs_period_us") if len(quota) == 1 else quota[1]

print(json.dumps({
    "Status": {k: " ".join(v.split()) for k, _, v in (l.partition(":") for l in read("/proc/self/status").splitlines())},
    "Mounts": mounts,
    "Limits": {k: resource.getrlimit(getattr(resource, "RLIMIT_" + k.upper())) for k in ("core", "nofile", "memlock", "msgqueue")},
    "Interfaces": sorted(name for _, name in socket.if_nameindex()),
    "Written": sorted(d for d, _, _ in os.walk("/") if not d.startswith(("/proc", "/sys")) and writable(d)),
    "Env": dict(os.environ),
    "Hostname": socket.gethostname(),
    "Pid": os.getpid(),
    "Oom": int(read("/proc/self/oom_score_adj")),
    "CPU": int(quota[0]) / int(period),
    "Memory": int(read("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max")),
    "Pids": int(read("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max")),
}))
