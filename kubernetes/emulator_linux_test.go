package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/handover"
	"github.com/execbroker/execbroker/kubernetes/podtest"
	"github.com/execbroker/execbroker/runner"
)

// emulator starts an emulator for a test.
func emulator(t *testing.T, cfg podtest.Config) *podtest.Server {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Engine, cfg.Namespace = host, "sandboxes"
	s, err := podtest.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// emulated opens a backend over an emulator.
func emulated(t *testing.T, s *podtest.Server) *backend {
	t.Helper()
	b, err := newBackend(driver.Env{Owner: "tests"}, testConfig(s.Kubeconfig, "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// idle makes a pod whose main process waits for an opener, and waits until it runs.
func idle(t *testing.T, b *backend) *corev1.Pod {
	t.Helper()
	x := testBox(&b.cfg, executor.NetworkNone)
	made, err := b.api.create(t.Context(), x.pod(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := untilOK(t.Context(), func() error {
		pod, err := b.api.get(t.Context(), made.Name)
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = errors.New("it does not run: " + waitsFor(pod))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return made
}

// left waits until as many containers are there as should be: what has ended is removed a moment
// after its session.
func left(t *testing.T, s *podtest.Server, want int) {
	t.Helper()
	if err := untilOK(t.Context(), func() error {
		ids, err := s.Containers(t.Context())
		if err == nil && len(ids) != want {
			err = fmt.Errorf("%d containers, want %d", len(ids), want)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestEarlyAnswer: an exec is answered before the node is asked, and that the container is not
// there comes later.
func TestEarlyAnswer(t *testing.T) {
	b := emulated(t, emulator(t, podtest.Config{}))
	x := testBox(&b.cfg, executor.NetworkNone)
	x.image = "docker.io/library/not-there:1"
	made, err := b.api.create(t.Context(), x.pod(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := untilOK(t.Context(), func() error {
		s, err := b.api.exec(t.Context(), made.Name, handover.NothingCommand(python))
		if err != nil {
			return err // there is no node yet
		}
		defer s.Close()
		_, err = s.Read(make([]byte, 1))
		var e *exitError
		if !errors.As(err, &e) || !e.notStarted() {
			t.Errorf("got %v, want one that says that it was not started", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestGrace: a pod that is deleted with a grace is gone when its code is. Without one the object is
// gone at once, and the code runs on: so Remove gives it one.
func TestGrace(t *testing.T) {
	s := emulator(t, podtest.Config{})
	b := emulated(t, s)
	for name, test := range map[string]struct {
		remove func(*corev1.Pod) error
		left   int
	}{
		"lie": {func(p *corev1.Pod) error {
			return b.api.rest.Delete().Namespace("sandboxes").Resource("pods").Name(p.Name).Body([]byte(`{"gracePeriodSeconds": 0}`)).Do(t.Context()).Error()
		}, 1},
		"remove": {func(p *corev1.Pod) error {
			return (&sandbox{b: b, id: p.Labels[labelSession], uid: p.UID}).Remove(t.Context())
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := idle(t, b)
			if err := test.remove(p); err != nil {
				t.Fatal(err)
			}
			if _, err := b.api.get(t.Context(), p.Name); !missing(err) {
				t.Errorf("got %v, want that it is gone", err)
			}
			left, err := s.Containers(t.Context())
			if err != nil || len(left) != test.left {
				t.Errorf("%d containers are left, want %d: %v", len(left), test.left, err)
			}
			if err := untilOK(t.Context(), func() error {
				left, err := s.Containers(t.Context())
				if err == nil && len(left) > 0 {
					err = errors.New("a container is left")
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRequests: create, run and close are six requests at most, also where pods start much later
// than those before, and a warm run is none.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := emulator(t, podtest.Config{})
	b := emulated(t, s)
	x, err := runner.Open(b.env, b, b.options())
	if err != nil {
		t.Fatal(err)
	}
	if err := create(t, x, executor.Spec{}).Close(); err != nil { // this one sweeps, too
		t.Fatal(err)
	}
	for name, guess := range map[string]time.Duration{"learned": 0, "early": leastGuess} {
		t.Run(name, func(t *testing.T) {
			if guess > 0 {
				b.starts.took = guess
			}
			before := s.Requests()
			box := create(t, x, executor.Spec{})
			run(t, box, "kept = 6")
			warm := s.Requests()
			if got := run(t, box, "print(7 * kept)"); got != "42\n" {
				t.Errorf("got %q", got)
			}
			if n := s.Requests() - warm; n != 0 {
				t.Errorf("a warm run takes %d requests", n)
			}
			if err := box.Close(); err != nil {
				t.Fatal(err)
			}
			if n := s.Requests() - before; n > 6 {
				t.Errorf("create, run and close take %d requests", n)
			}
		})
	}
	left(t, s, 0)
}

// TestLostOutput: what a main process has said before somebody is attached is not said again.
func TestLostOutput(t *testing.T) {
	b := emulated(t, emulator(t, podtest.Config{}))
	x := testBox(&b.cfg, executor.NetworkNone)
	pod := x.pod()
	pod.Spec.Containers[0].Command = []string{python, "-c", "import sys, time\nprint('early', flush=True)\nfor l in sys.stdin: print('late', l, flush=True)"}
	pod.Spec.Containers[0].Stdin = true
	if _, err := b.api.create(t.Context(), pod, false); err != nil {
		t.Fatal(err)
	}
	if err := untilOK(t.Context(), func() error {
		p, err := b.api.get(t.Context(), pod.Name)
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = errors.New("it does not run")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	u := b.api.rest.Get().Namespace("sandboxes").Resource("pods").Name(pod.Name).SubResource("attach").Param("stdin", "true").Param("stdout", "true").URL()
	s, err := b.api.stream(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.WriteString(s, "x\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := io.ReadFull(s, got); err != nil || string(got) != "late x" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestEmulatorRefuses: what a namespace does not take is refused with its kind, and nothing is
// left.
func TestEmulatorRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		cfg   podtest.Config
		edit  func(*Config)
		kind  error
		says  string
		taken int // sessions before
	}{
		"quota":        {podtest.Config{Pods: 1}, func(*Config) {}, executor.ErrExhausted, "exceeded quota", 1},
		"pod-security": {podtest.Config{Baseline: true}, func(*Config) {}, executor.ErrUnsupported, podSecurity, 0},
		"no-image":     {podtest.Config{}, func(c *Config) { c.Image = "docker.io/library/not-there:1" }, executor.ErrUnavailable, "not-there", 0},
		"no-python":    {podtest.Config{}, func(c *Config) { c.Image = dockertest.NoPython }, executor.ErrUnsupported, "python3", 0},
		"namespace":    {podtest.Config{}, func(c *Config) { c.Namespace = "other" }, executor.ErrUnavailable, "other", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := emulator(t, test.cfg)
			cfg := testConfig(s.Kubeconfig, "sandboxes")
			test.edit(&cfg)
			x, err := Open(t.Context(), driver.Env{Owner: "tests"}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			for range test.taken {
				held, err := x.Create(t.Context(), executor.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				defer held.Close()
			}
			again, err := x.Create(t.Context(), executor.Spec{})
			if err == nil {
				again.Close()
				t.Fatal("created")
			}
			var e *executor.Error
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) || !errors.As(err, &e) || e.Ran != executor.RanNo {
				t.Errorf("got %v, want %v with %q", err, test.kind, test.says)
			}
			left(t, s, test.taken)
		})
	}
}

// TestPolicy: where policies are enforced a sandbox has no network without the right to take it
// down; where they are not, it is refused before there is code, and nothing is left.
func TestPolicy(t *testing.T) {
	t.Parallel()
	for name, enforces := range map[string]bool{"enforced": true, "forgotten": false} {
		t.Run(name, func(t *testing.T) {
			s := emulator(t, podtest.Config{Baseline: true, Enforces: enforces})
			cfg := testConfig(s.Kubeconfig, "sandboxes")
			cfg.Network = NetworkPolicy
			x, err := Open(t.Context(), driver.Env{Owner: "tests"}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			box, err := x.Create(t.Context(), executor.Spec{})
			if !enforces {
				var e *executor.Error
				if !errors.Is(err, executor.ErrUnsupported) || !errors.As(err, &e) || e.Ran != executor.RanNo || !strings.Contains(err.Error(), "does not enforce") {
					t.Errorf("got %v", err)
				}
				left(t, s, 0)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			res, err := box.Run(t.Context(), executor.Request{Code: "import socket\ntry: socket.create_connection(('10.0.0.1', 80), 2)\nexcept OSError: print('cut off')"}, nil)
			if err != nil || string(res.Stdout) != "cut off\n" {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// TestPolicyTargets: a network that cuts pods off from the API server and their node alone is found
// out by a listener of ours.
func TestPolicyTargets(t *testing.T) {
	t.Parallel()
	l, err := dockertest.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := emulator(t, podtest.Config{Hides: true})
	for name, targets := range map[string][]string{"none": nil, "listener": {l.Addr().String()}} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(s.Kubeconfig, "sandboxes")
			cfg.Network, cfg.PolicyTargets = NetworkPolicy, targets
			box, err := open(t, cfg).Create(t.Context(), executor.Spec{})
			if err == nil {
				defer box.Close()
			}
			if found := errors.Is(err, executor.ErrUnsupported); found != (targets != nil) || err != nil && !found {
				t.Errorf("got %v", err)
			}
		})
	}
	left(t, s, 0)
}

// TestPolicyOfOthers: a policy of the same name that lets something through is no protection.
func TestPolicyOfOthers(t *testing.T) {
	b := emulated(t, emulator(t, podtest.Config{}))
	other := denyAll()
	other.Spec.PolicyTypes = other.Spec.PolicyTypes[:1]
	if err := b.api.createPolicy(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := b.ensurePolicy(t.Context()); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

// emulatedTarget is the adapter over the emulator.
func emulatedTarget() conformance.Target {
	o := target(nil)
	var server *podtest.Server
	o.Implementation.Version, o.Mode = "podtest", conformance.Emulated
	o.Parallel, o.Grace = 4, 0 // as for other containers
	o.Setup = func(ctx context.Context) (map[string]string, func() error, error) {
		host, err := dockertest.Host()
		if err != nil {
			return nil, nil, err
		}
		if server, err = podtest.Start(ctx, podtest.Config{Engine: host, Namespace: "sandboxes"}); err != nil {
			return nil, nil, err
		}
		params, end, err := setup(ctx, server.Kubeconfig, "sandboxes", dockertest.Listen)
		if err != nil {
			return nil, nil, errors.Join(err, server.Close())
		}
		return params, func() error { return errors.Join(server.Close(), end()) }, nil
	}
	o.Leaks = func(ctx context.Context, params map[string]string) ([]string, error) {
		b, err := newBackend(driver.Env{Owner: owner}, testConfig(params[paramKubeconfig], params[paramNamespace]))
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return leftAt(ctx, b, func() ([]string, error) { return server.Containers(ctx) })
	}
	return o
}

// TestConformanceEmulated runs the suite against the emulator, whose containers are those of an
// engine.
func TestConformanceEmulated(t *testing.T) { conformancetest.Test(t, emulatedTarget()) }
