package bubblewrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/bwrap"
	"github.com/execbroker/execbroker/internal/missing"
)

// forbids are settings of the system that keep programs from making user namespaces, with the value
// that does.
var forbids = []struct{ name, value, words string }{
	{"kernel.unprivileged_userns_clone", "0", "keeps user namespaces for root"},
	{"user.max_user_namespaces", "0", "allows no user namespace"},
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "takes the rights in a user namespace from programs without an AppArmor profile"},
}

// forbidden says what of the system may stand in the way, or nothing.
func forbidden() string {
	var found []string
	for _, f := range forbids {
		text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(f.name, ".", "/"))
		if err == nil && strings.TrimSpace(string(text)) == f.value {
			found = append(found, "; "+f.name+"="+f.value+" "+f.words)
		}
	}
	return strings.Join(found, "")
}

// Doctor examines what the backend needs, and starts a sandbox for each root and language that says
// its version. It starts none if it is known that none would start.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	m, err := newMachine(env, cfg)
	if err != nil {
		return []driver.Check{missing.Check("machine", err, "mount /proc")}
	}
	checks := []driver.Check{bwrapCheck(ctx), usersCheck(cfg.AllowWeak), m.limitsCheck()}
	checks = append(checks, driver.Check{Name: "isolation", OK: true, Detail: string(executor.IsolationContainer) + ": the kernel of this machine is shared"})
	if !checks[0].OK || !checks[1].OK {
		return checks
	}
	for _, name := range append([]string{""}, slices.Sorted(maps.Keys(cfg.Templates))...) {
		for _, l := range cfg.languages() {
			checks = append(checks, m.trial(ctx, name, l))
		}
	}
	return checks
}

func bwrapCheck(ctx context.Context) driver.Check {
	c := driver.Check{Name: "bwrap"}
	path, err := bwrap.Find()
	var out []byte
	if err == nil {
		out, err = exec.CommandContext(ctx, path, "--version").Output()
	}
	if err != nil {
		return missing.Check(c.Name, noBwrap(err), "")
	}
	c.OK, c.Detail = true, fmt.Sprintf("%s at %s", strings.TrimSpace(string(out)), path)
	return c
}

// noBwrap says that the program bwrap cannot be used.
func noBwrap(err error) error {
	return missing.New("bwrap", err, "install bubblewrap 0.8 or later (for example `apt-get install bubblewrap`)")
}

func usersCheck(weak bool) driver.Check {
	c := driver.Check{Name: "users"}
	who, err := identify(weak)
	if err != nil {
		return missing.Check(c.Name, err, "see /proc/self/uid_map and /etc/subuid")
	}
	c.OK, c.Detail = true, "sandboxes have "+who.how+forbidden()
	if who.same {
		c.Detail += "; code can end its supervisor and speak for it"
	}
	return c
}

// limitsCheck is never a failure: without control groups limits are not declared, and refused.
func (m *machine) limitsCheck() driver.Check {
	c := driver.Check{Name: "limits", OK: true}
	switch {
	case m.groups == nil:
		c.Detail = "memory, processes and CPU are not limited, and a session that asks for it is refused: " + m.noGroup.Error()
		c.Fix = "run as root, or under systemd with Delegate=yes, or name a control group of this user with cgroup"
	case m.groups.version == 2:
		c.Detail = "memory, processes and CPU by control groups of version 2 below " + m.groups.parents[0] + ", which is not tested here"
	default:
		c.Detail = "memory, processes and CPU by control groups of version 1 below " + strings.Join(m.groups.parents, ", ") +
			", which do not count what waits in sockets of the loopback interface"
	}
	return c
}

// trial starts a sandbox.
func (m *machine) trial(ctx context.Context, template string, l executor.Language) driver.Check {
	root := m.cfg.root(template)
	c := driver.Check{Name: "sandbox with " + string(l)}
	if template != "" {
		c.Name += " of template " + template
	}
	command := []string{python, "--version"}
	if l == executor.JavaScript {
		command = []string{"node", "--version"}
	}
	text, err := m.try(ctx, root, command)
	if err != nil {
		c.Detail = err.Error()
		c.Fix = "install " + command[0] + " below " + filepath.Join("/", root, "usr") + ", and see what the message forbids"
		if root != "" {
			err := reachable(root)
			if err != nil {
				c.Detail, c.Fix = err.Error(), "let every user enter the directories above the root, and read what is in it"
			}
		}
		return c
	}
	c.OK, c.Detail = true, strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD"))
	return c
}

// try executes a command in a sandbox, and returns the beginning of what it writes.
func (m *machine) try(ctx context.Context, root string, command []string) ([]byte, error) {
	who, err := identify(m.cfg.AllowWeak)
	if err != nil {
		return nil, err
	}
	b := &box{root: root, want: executor.Limits{DiskBytes: defaultDisk}, who: who, note: "{}"}
	p, conn, err := start(ctx, b, command)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	text, err := io.ReadAll(io.LimitReader(conn, maxSaid))
	if err = errors.Join(err, p.kill(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	if p.code != 0 || len(text) == 0 {
		return nil, fmt.Errorf("exit code %d: %s", p.code, p.said)
	}
	return text, nil
}

// reachable says which directory of a path other users cannot enter.
func reachable(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if st.Mode()&0o001 == 0 {
			return fmt.Errorf("%s: other users cannot enter it", dir)
		}
		if dir == "/" {
			return nil
		}
	}
}
