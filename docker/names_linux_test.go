package docker

import (
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// Code may ask for names whatever it likes, and may stop asking in the middle.
func TestNames(t *testing.T) {
	t.Parallel()
	s := create(t, open(t), executor.Spec{})
	for _, c := range []struct{ name, code, want string }{
		{"user", "import os, pwd; p = pwd.getpwuid(os.getuid()); print(p.pw_name, p.pw_dir, p.pw_gid == os.getgid())", "user /tmp/home True"},
		{"user-by-name", "import os, pwd; print(pwd.getpwnam('user').pw_uid == os.getuid())", "True"},
		{"group", "import grp, os; g = grp.getgrgid(os.getgid()); print(g.gr_name, g.gr_mem)", "user []"},
		{"group-by-name", "import grp, os; print(grp.getgrnam('user').gr_gid == os.getgid())", "True"},
		{"root", "import grp, pwd; print(pwd.getpwuid(0).pw_name, pwd.getpwnam('root').pw_uid, grp.getgrnam('root').gr_gid)", "root 0 0"},
		{"nobody-has-it", `
import pwd
try: pwd.getpwnam("no-such-user")
except KeyError: print("none")`, "none"},
		{"commands", "import subprocess; print(subprocess.run('id -un; id -gn; ls -ld ~ | cut -d\" \" -f3', shell=True, capture_output=True, text=True).stdout.split())", "['user', 'user', 'user']"},
		{"garbage", `
import os, pwd, socket, struct
for data in [b"", b"x", os.urandom(12), os.urandom(5000), struct.pack("=3i", 2, 1, 1 << 30), struct.pack("=3i", 2, -1, 4) + b"12", struct.pack("=3i", 2, 11, 7) + b"passwd\0"]:
    for half in (False, True):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect("/run/nscd/socket")
            s.sendall(data)
            if not half: s.shutdown(socket.SHUT_WR)
print(pwd.getpwuid(os.getuid()).pw_name)`, "user"},
		{"flood", `
import os, pwd, socket
open = []
for i in range(40):
    open.append(socket.socket(socket.AF_UNIX))
    open[-1].connect("/run/nscd/socket")
for s in open: s.close()
print(pwd.getpwuid(os.getuid()).pw_name)`, "user"},
		{"removed", `
import os
for f in (lambda: os.remove("/run/nscd/socket"), lambda: os.rename("/run/nscd", "/run/mine"), lambda: os.mkdir("/run/nscd/x")):
    try: f(); print("done")
    except OSError as e: print("refused")`, "refused\nrefused\nrefused"},
		{"killed", `
import os, subprocess
mine = {str(os.getpid()), "1"}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if pid not in mine: os.kill(int(pid), 9); print("killed")
    except PermissionError: pass
print(subprocess.run(["whoami"], capture_output=True, text=True).stdout.strip())`, "user"},
	} {
		t.Run(c.name, func(t *testing.T) { says(t, s, c.code, c.want) })
	}
}
