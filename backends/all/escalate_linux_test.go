package all_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestEscalation: conversations on Pyodide whose code needs what only Docker has go on there with
// what they had, and no code runs twice.
func TestEscalation(t *testing.T) {
	host, err := dockertest.Host()
	check(t, err)
	t.Setenv("CHECKPOINT_KEY", string(bytes.Repeat([]byte("k"), 32)))
	cfg, err := backends.Parse(fmt.Appendf(nil, `
backends: {local: {type: pyodide}, box: {type: docker, host: %q, image: %q, pull: never}}
sessions: {checkpoint: {every: 5 runs, key: {env: CHECKPOINT_KEY}}}
escalate: [{from: local, to: box, on: [subprocess, threads, package]}]
routes: [{name: all, split: [{backend: local, weight: 1}]}]`, host, dockertest.Python))
	check(t, errors.Join(err, cfg.Check(all.Registry())))
	b, err := backends.Open(t.Context(), driver.Env{Owner: fmt.Sprint("escalation-", rand.Uint32())}, all.Registry(), cfg)
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	for _, c := range []struct {
		name, code, want string
		after            bool // the code fails first, and the next run is on the other backend
	}{
		{"subprocess", "import subprocess\nprint(subprocess.run(['echo', basket.items[0]], capture_output=True, text=True).stdout.strip())", "first", false},
		{"threads", "import threading\nt = threading.Thread(target=lambda: basket.items.append('more')); t.start(); t.join()\nprint(len(basket.items))", "2", false},
		{"package", "import numpy\nprint(int(numpy.arange(4).sum()))", "6", false},
		{"package-in-a-function", "def f():\n    import resource\n    return resource.RUSAGE_SELF\nopen('sent.txt', 'a').write('once\\n')\nprint(f())", "", true},
		{"process-of-os", "import os\nopen('sent.txt', 'a').write('once\\n')\nif os.name: import subprocess\nprint(subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout.strip())", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := func(code string) *executor.Result {
				t.Helper()
				l, err := b.Manager().Acquire(t.Context(), c.name, executor.Spec{Subject: c.name, Languages: []executor.Language{executor.Python}})
				check(t, err)
				r, err := l.Run(t.Context(), executor.Request{Code: code}, nil)
				check(t, errors.Join(err, l.Release()))
				return r
			}
			if r := run(fmt.Sprintf(state, "first")); r.Origin.Backend != "local" || r.Err() != nil {
				t.Fatalf("got %v on %s", r.Err(), r.Origin.Backend)
			}
			r := run(c.code)
			if c.after {
				if r.Origin.Backend != "local" || r.Status != executor.StatusFailed || len(r.Notices) != 1 || !strings.Contains(r.Notices[0], "is not repeated") {
					t.Errorf("got %s on %s, %q, %+v", r.Status, r.Origin.Backend, r.Notices, r.Exception)
				}
				if r = run("print(open('sent.txt').read().count('once'))"); string(r.Stdout) != "1\n" {
					t.Errorf("the code ran %q times", r.Stdout)
				}
			} else if string(r.Stdout) != c.want+"\n" {
				t.Errorf("got %q, %v, want %q", r.Stdout, r.Exception, c.want)
			}
			if r.Origin.Backend != "box" || len(r.Notices) != 1 || !strings.HasPrefix(r.Notices[0], "moved from local to box") {
				t.Errorf("got %s, %q", r.Origin.Backend, r.Notices)
			}
			if r := run("print(basket.items[0], basket.owner is basket, round(area(2), 3), open('notes.txt').read())"); string(r.Stdout) != "first True 12.566 first\n" {
				t.Errorf("got %q, %v", r.Stdout, r.Exception)
			}
			check(t, b.Manager().Discard(t.Context(), c.name))
		})
	}
}
