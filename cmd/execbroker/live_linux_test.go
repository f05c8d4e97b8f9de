package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/conformance/live"
	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// rehearsal is a service on this machine, and the configuration for it.
type rehearsal struct {
	config, key string
	count       func(t *testing.T) int  // counts its sandboxes on the engine
	listed      func(t *testing.T) bool // whether the service has listed one
	differs     []string                // the facts in which the stand-in differs from the service
}

// rehearseE2B stands in for E2B.
func rehearseE2B(t *testing.T) rehearsal {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	owner := "live-" + strings.ToLower(t.Name())
	s, err := e2btest.Start(t.Context(), e2btest.Options{Owner: owner, Docker: docker.Config{Host: host, Limits: docker.Limits{CPUs: 2, Processes: 256}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	config := fmt.Sprintf("backends: {cloud: {type: e2b, api_url: %q, sandbox_url: %q, networks: [none, full], api_key: {env: LIVE_TEST_KEY}}}\n", s.URL, s.URL)
	return rehearsal{
		key: e2btest.Key, config: write(t, t.TempDir(), "e2b.yaml", config),
		count: func(t *testing.T) int { return containersOf(t, host, driver.LabelOwner+"="+owner) },
		listed: func(t *testing.T) bool {
			return strings.Contains(ask(t, 200, "GET", s.URL+"/v2/sandboxes", "", "X-API-KEY", e2btest.Key), "sandboxID")
		},
		differs: []string{"error-in-stream", "late-end", "upload-media-type"},
	}
}

// rehearseFly stands in for Fly, with Fly's rate limits.
func rehearseFly(t *testing.T) rehearsal {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	const rate = 3 // times Fly's, so that the fact about its limit does not take long
	s, err := flytest.Start(t.Context(), flytest.Config{Engine: host, Apps: []flytest.App{{Name: "sandboxes"}}, Rate: rate, Images: map[string]string{flymachines.DefaultImage: dockertest.Trixie}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	config := fmt.Sprintf("backends: {cloud: {type: flymachines, app: sandboxes, api: %q, proxy: %q, rate: %d, token: {env: LIVE_TEST_KEY}}}\n", s.API, s.Edge, rate)
	return rehearsal{
		key: s.Token(), config: write(t, t.TempDir(), "fly.yaml", config),
		count: func(t *testing.T) int {
			left, err := s.Containers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(left)
		},
	}
}

func containersOf(t *testing.T, host, label string) int {
	t.Helper()
	names, err := dockertest.Containers(t.Context(), host, label)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// none waits until no sandbox is left: stand-ins remove those of killed programs.
func (r rehearsal) none(t *testing.T) {
	t.Helper()
	waittest.Until(t, "no sandbox is left", func() error {
		if n := r.count(t); n > 0 {
			return fmt.Errorf("got %d", n)
		}
		return nil
	})
}

// live prepares a run of the kit.
func (r rehearsal) live(t *testing.T, args ...string) (p *process, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "found")
	p = installed(t, append([]string{"conformance", "live", "--config", r.config, "--backend", "cloud", "--owner", "rehearsal", "--out", dir}, args...)...)
	p.Env = append(p.Env, "LIVE_TEST_KEY="+r.key)
	return p, dir
}

// found reads what a run has written, and checks that the key is not in it.
func (r rehearsal) found(t *testing.T, p *process, dir string) (l live.Result) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "live.json"))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, p.out.String(), p.err.String())
	}
	decode(t, data, &l)
	err = filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if strings.Contains(string(data), r.key) || strings.Contains(string(data), "rehearsal") {
			t.Errorf("%s has the key or the owner", file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLive runs the kit against stand-ins: a part of the suite and all facts.
func TestLive(t *testing.T) {
	t.Parallel()
	for name, rehearse := range map[string]func(*testing.T) rehearsal{"e2b": rehearseE2B, "fly": rehearseFly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rehearse(t)
			p, dir := r.live(t, "--budget", "2USD", "--only", "python/state/variables", "--only", "attach/other-process")
			code := p.code(t, p.Run())
			l := r.found(t, p, dir)
			var differ []string
			for _, trap := range l.Traps {
				if trap.Outcome != live.AsExpected && trap.Outcome != live.Noted {
					differ = append(differ, trap.Name)
					t.Logf("%s: %s: %s", trap.Name, trap.Outcome, trap.Seen)
				}
			}
			if slices.Sort(differ); !slices.Equal(differ, r.differs) {
				t.Errorf("got that these differ: %q, want %q", differ, r.differs)
			}
			want := 0
			if len(r.differs) > 0 {
				want = exitFailed
			}
			if code != want {
				t.Errorf("got exit code %d: %s%s", code, p.out.String(), p.err.String())
			}
			if l.Spent.Sandboxes < 2 || l.Spent.USD <= 0 || l.Spent.USD > 2 || len(l.Left) > 0 {
				t.Errorf("got %+v, left %q", l.Spent, l.Left)
			}
			r.none(t)
			contains(t, p.err.String(), "at most 2.00 USD", "read in", "not known")
			exchanges, err := filepath.Glob(filepath.Join(dir, "exchanges", "trap-*.txt"))
			if err != nil || len(exchanges) < len(l.Traps)*2/3 {
				t.Errorf("got %q, %v, want an exchange of most facts", exchanges, err)
			}
		})
	}
}

// TestLiveEnds ends the kit in all possible ways and checks that nothing is left.
func TestLiveEnds(t *testing.T) {
	t.Parallel()
	r := rehearseE2B(t)
	begun := func(t *testing.T, p *process) {
		t.Helper()
		waittest.Until(t, "there is a sandbox", func() error {
			if !r.listed(t) {
				return errors.New("none is listed")
			}
			return nil
		})
	}
	for name, c := range map[string]struct {
		args []string
		why  string
	}{
		"money":     {[]string{"--budget", "0.01USD"}, "budget is used up"},
		"sandboxes": {[]string{"--budget", "2USD", "--max-sandboxes", "1"}, "no more sandboxes"},
	} {
		t.Run(name, func(t *testing.T) {
			p, dir := r.live(t, append(c.args, "--only", "python/timeouts/*")...)
			if code := p.code(t, p.Run()); code != exitFailed {
				t.Errorf("got exit code %d: %s", code, p.err.String())
			}
			if l := r.found(t, p, dir); !strings.Contains(l.Stopped, c.why) || l.Spent.Sandboxes > 1 {
				t.Errorf("got %q after %+v, want %q", l.Stopped, l.Spent, c.why)
			}
			r.none(t)
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		p, dir := r.live(t, "--budget", "2USD", "--only", "python/timeouts/*")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		begun(t, p)
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := p.code(t, p.Wait()); code != 128+int(syscall.SIGINT) {
			t.Errorf("got exit code %d: %s", code, p.err.String())
		}
		if l := r.found(t, p, dir); l.Stopped == "" || len(l.Left) > 0 {
			t.Errorf("got %q, left %q", l.Stopped, l.Left)
		}
		r.none(t)
	})
	t.Run("killed", func(t *testing.T) {
		kill := func() {
			p, _ := r.live(t, "--budget", "2USD", "--only", "python/timeouts/*")
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			begun(t, p)
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.code(t, p.Wait())
			if r.count(t) == 0 {
				t.Fatal("nothing is left, so there is nothing to remove")
			}
		}
		kill()
		next, dir := r.live(t, "--budget", "2USD", "--only", "info/pure", "--fact", "none")
		if code := next.code(t, next.Run()); code != 0 {
			t.Errorf("got exit code %d: %s%s", code, next.out.String(), next.err.String())
		}
		if l := r.found(t, next, dir); l.Before == 0 {
			t.Errorf("got %+v, want that what was left is removed", l)
		}
		r.none(t)
		kill()
		reap := installed(t, "session", "reap", "--config", r.config, "--owner", "rehearsal.live", "--older-than", "1ms")
		reap.Env = append(reap.Env, "LIVE_TEST_KEY="+r.key)
		if code := reap.code(t, reap.Run()); code != 0 {
			t.Errorf("got exit code %d: %s", code, reap.err.String())
		}
		r.none(t)
	})
}

// TestLiveUsageErrors checks that errors are reported before anything is created.
func TestLiveUsageErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no-budget": {[]string{"--backend", "e2b"}, "is no budget"},
		"no-kit":    {[]string{"--backend", "docker", "--budget", "1USD"}, "no live kit for backends of type docker"},
		"unknown":   {[]string{"--backend", "nowhere", "--budget", "1USD"}, `unknown backend "nowhere"`},
		"no-time":   {[]string{"--backend", "e2b", "--budget", "1USD", "--max-time", "0s"}, "--max-time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := installed(t, append([]string{"conformance", "live"}, c.args...)...)
			p.Env = append(p.Env, "E2B_API_KEY=e2b_00")
			if code := p.code(t, p.Run()); code != exitUsage || !strings.Contains(p.err.String(), c.want) {
				t.Errorf("got exit code %d: %s, want %q", code, p.err.String(), c.want)
			}
		})
	}
}
