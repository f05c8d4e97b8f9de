package all_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/waittest"
)

// The environment variables that make the test binary an application that runs until it is killed.
const (
	killedOwner  = "KILLED_OWNER"
	killedConfig = "KILLED_CONFIG"
)

func TestMain(m *testing.M) {
	if owner := os.Getenv(killedOwner); owner != "" {
		fmt.Fprintln(os.Stderr, application(owner, os.Getenv(killedConfig)))
		os.Exit(1) // it should have been killed
	}
	os.Exit(m.Run())
}

// conversations are the conversations of the application. Each goes to the backend that its
// attribute selects.
var conversations = []struct{ key, plan string }{{"c1", box}, {"c2", box}, {"e1", cloud}, {"f1", machines}, {"p1", local}, {"p2", local}}

func specOf(plan string) executor.Spec {
	return executor.Spec{Languages: []executor.Language{executor.Python}, Attributes: map[string]string{"plan": plan}}
}

func openFile(ctx context.Context, owner, instance, config string) (*backends.Broker, error) {
	cfg, err := backends.Parse([]byte(config))
	if err != nil {
		return nil, err
	}
	return backends.Open(ctx, driver.Env{Owner: owner, Instance: instance}, all.Registry(), cfg)
}

// application counts in each conversation and prints what it has seen.
func application(owner, config string) error {
	box, err := openFile(context.Background(), owner, "killed", config)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(context.Background()) // cancelled by the first error, because the test waits for a line of each conversation
	var mu sync.Mutex
	for _, c := range conversations {
		g.Go(func() error {
			for n := 0; ; n++ {
				lease, err := box.Manager().Acquire(ctx, c.key, specOf(c.plan))
				if err != nil {
					return err
				}
				res, err := lease.Run(ctx, executor.Request{Code: fmt.Sprintf("n = 0 if %d == 0 else n + 1\nprint(n)", n)}, nil)
				if err == nil {
					err = lease.Release()
				}
				if err != nil {
					return err
				}
				mu.Lock()
				fmt.Printf("%s %s", c.key, res.Stdout)
				mu.Unlock()
			}
		})
	}
	return g.Wait()
}

// TestKilledApplication kills an application under load and starts it again. Conversations that can
// go on go on, those that cannot are told so, and nothing is left, counted on the engine and in the
// process table.
//
// Its leases last for longer than the test, since an application that gets no processor time for as
// long as a lease lasts loses it. After it was killed, the test ends them.
func TestKilledApplication(t *testing.T) {
	f := newFour(t)
	var file, routes strings.Builder
	for _, name := range []string{local, box, cloud, machines} {
		warm := ", broker: {pools: [{size: 1, languages: [python]}]}"
		if name == local {
			warm = ""
		}
		fmt.Fprintf(&file, "  %s: {%s%s}\n", name, f.settings[name], warm)
		fmt.Fprintf(&routes, "  - {name: to-%s, match: {attributes: {plan: %s}}, split: [{backend: %s, weight: 1}]}\n", name, name, name)
	}
	config := fmt.Sprintf("backends:\n%sroutes:\n%ssessions: {store: %q, lease_ttl: 1h}\n", &file, &routes,
		"sqlite:"+filepath.Join(t.TempDir(), "sessions.db"))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killedOwner+"="+f.owner, killedConfig+"="+config)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	seen := map[string]int{}
	ready := func() bool {
		for _, c := range conversations {
			if seen[c.key] < 5 {
				return false
			}
		}
		return true
	}
	lines := bufio.NewScanner(out)
	for !ready() && lines.Scan() {
		key, n, _ := strings.Cut(lines.Text(), " ")
		if seen[key], err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	children := descendants(t, cmd.Process.Pid)
	if len(children) < 2 { // at least one for each conversation on Pyodide
		t.Fatalf("got processes %v", children)
	}
	cmd.Process.Kill()
	for lines.Scan() { // what it had printed when it was killed
		if key, n, ok := strings.Cut(lines.Text(), " "); ok {
			seen[key], _ = strconv.Atoi(n)
		}
	}
	cmd.Wait()
	waittest.Until(t, "its processes end with the application", func() error {
		for pid, start := range children {
			if s, ok := started(pid); ok && s == start {
				return fmt.Errorf("%s lives", pid)
			}
		}
		return nil
	})

	b, err := openFile(t.Context(), f.owner, "next", config)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var e *sessions.ElsewhereError
	if _, err := b.Manager().Acquire(t.Context(), "p1", specOf(local)); !errors.As(err, &e) || e.Instance != "killed" {
		t.Errorf("got %v before the lease has ended, want that the conversation is elsewhere", err)
	}
	endLeases(t, config)
	for _, c := range conversations {
		lease, err := b.Manager().Acquire(t.Context(), c.key, specOf(c.plan))
		if err != nil {
			t.Fatalf("%s: %v", c.key, err)
		}
		res, err := lease.Run(t.Context(), executor.Request{Code: "print(n)"}, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.key, err)
		}
		switch c.plan {
		case box, cloud, machines: // the interrupted run may have happened without being reported
			n, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
			if lease.Fresh || err != nil || n < seen[c.key] || n > seen[c.key]+1 {
				t.Errorf("%s: fresh %v, got %q, want that it goes on after %d", c.key, lease.Fresh, res.Stdout, seen[c.key])
			}
		case local:
			if !lease.Fresh || res.Exception == nil || res.Exception.Type != "NameError" {
				t.Errorf("%s: fresh %v, got %+v, want that it begins anew and says so", c.key, lease.Fresh, res)
			}
		}
		if err := lease.Discard(); err != nil {
			t.Error(err)
		}
	}
	// Only the sandboxes that the killed process kept warm are left. Reap would remove them a
	// minute after the process was in contact with them.
	for i, err := range b.Sessions(t.Context(), nil) {
		if err == nil {
			err = b.Destroy(t.Context(), i.Handle)
		}
		if err != nil && !errors.Is(err, executor.ErrUnsupported) {
			t.Errorf("%s: %v", i.Handle.Session, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	f.nothingLeft(t)
}

// endLeases ends the leases and the heartbeat of the killed application in the store of a
// configuration, as time would.
func endLeases(t *testing.T, config string) {
	t.Helper()
	cfg, err := backends.Parse([]byte(config))
	check(t, err)
	store, closer, err := cfg.Sessions.OpenStore(t.Context())
	check(t, err)
	defer closer.Close()
	for _, c := range conversations {
		e, err := store.Get(t.Context(), "session/"+c.key)
		check(t, err)
		var r sessions.Record
		check(t, e.DecodeForUpdate(&r))
		r.Until = time.Now()
		check(t, e.Encode(r))
		_, err = store.Put(t.Context(), "session/"+c.key, e)
		check(t, err)
	}
	e, err := store.Get(t.Context(), "instance/killed")
	check(t, err)
	check(t, store.Delete(t.Context(), "instance/killed", e.Rev))
}

// started returns when a process was started, in clock ticks. The PID alone may belong to another
// process by now.
func started(pid string) (start string, ok bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", false
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return f[19], f[0] != "Z"
}

// descendants returns the processes below pid, with their start times.
func descendants(t *testing.T, pid int) map[string]string {
	t.Helper()
	found := map[string]string{}
	var below func(pid string)
	below = func(pid string) {
		lists, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
		for _, list := range lists {
			b, _ := os.ReadFile(list)
			for _, child := range strings.Fields(string(b)) {
				if s, ok := started(child); ok {
					found[child] = s
					below(child)
				}
			}
		}
	}
	below(strconv.Itoa(pid))
	return found
}
