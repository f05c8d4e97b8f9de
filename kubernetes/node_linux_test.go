package kubernetes

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// testTaint taints the node: sessions go there only if the configuration tolerates that.
func testTaint(t *testing.T, c *kubetest.Cluster) {
	taint := func(taints string) {
		t.Helper()
		if _, err := c.Do(t.Context(), http.MethodPatch, "/api/v1/nodes/"+kubetest.NodeName, `{"spec": {"taints": `+taints+`}}`); err != nil {
			t.Fatal(err)
		}
	}
	taint(`[{"key": "others", "value": "only", "effect": "NoSchedule"}]`)
	defer taint("null")
	cfg := testConfig(c.Kubeconfig, namespace(t, c))
	cfg.ScheduleTimeout = driver.Duration(2 * time.Second)
	s, err := open(t, cfg).Create(t.Context(), executor.Spec{})
	if err == nil {
		s.Close()
		t.Fatal("created")
	}
	if !errors.Is(err, executor.ErrExhausted) || !strings.Contains(err.Error(), "taint") {
		t.Errorf("got %v", err)
	}
	cfg.ScheduleTimeout = 0 // what can be scheduled has the time that it needs
	cfg.Tolerations = []Toleration{{Key: "others", Value: "only", Effect: "NoSchedule"}}
	s = create(t, open(t, cfg), executor.Spec{})
	if got := run(t, s, "print(1)"); got != "1\n" {
		t.Errorf("got %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// testDrained evicts a pod during a run, as who drains its node does.
func testDrained(t *testing.T, c *kubetest.Cluster) {
	ns := namespace(t, c)
	s := create(t, open(t, testConfig(c.Kubeconfig, ns)), executor.Spec{})
	begun := false
	res, err := s.Run(t.Context(), executor.Request{
		Language: executor.Python, Code: "import time\nprint(1, flush=True)\ntime.sleep(60)",
	}, func(e executor.Event) error {
		if e.Kind == executor.EventStdout && !begun {
			begun = true
			name := pods(t, c, ns)[0]
			_, err := c.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+ns+"/pods/"+name+"/eviction", `{apiVersion: policy/v1, kind: Eviction, metadata: {name: `+name+`}}`)
			return err
		}
		return nil
	})
	if err != nil || res.Reason != executor.ReasonLifetime {
		t.Errorf("got %+v, %v", res, err)
	}
}

// testOutage kills the API server before and while a session is made. It is made, or fails as one
// in which nothing ran; nothing is left of it.
func testOutage(t *testing.T, c *kubetest.Cluster) {
	restart := func() error { return errors.Join(c.Kill(kubetest.APIServer), c.StartAPIServer(t.Context())) }
	for name, during := range map[string]bool{"before": false, "made": true} {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t, c)
			x := open(t, testConfig(c.Kubeconfig, ns))
			if !during {
				if err := c.Kill(kubetest.APIServer); err != nil {
					t.Fatal(err)
				}
			}
			made := make(chan error, 1)
			go func() { // the channel waits for it
				s, err := x.Create(t.Context(), executor.Spec{})
				if err == nil {
					err = s.Close()
				}
				made <- err
			}()
			if during {
				if err := untilOK(t.Context(), func() error {
					if len(pods(t, c, ns)) == 0 {
						return errors.New("there is no pod")
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if err := restart(); err != nil {
					t.Fatal(err)
				}
			}
			err := <-made
			if !during {
				if err == nil {
					t.Error("created without an API server")
				}
				if err := c.StartAPIServer(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var e *executor.Error
			if err != nil && (!errors.Is(err, executor.ErrUnavailable) || !errors.As(err, &e) || e.Ran != executor.RanNo) {
				t.Errorf("got %v", err)
			}
			if got := run(t, create(t, x, executor.Spec{}), "print(1)"); got != "1\n" {
				t.Errorf("afterwards: got %q", got)
			}
		})
	}
}

// testPolicy asks for policies where nothing enforces them, with the rights of that mode in a
// namespace of Pod Security's baseline: the pod is admitted, finds that out, and is refused.
func testPolicy(t *testing.T, c *kubetest.Cluster) {
	ns := namespace(t, c)
	if _, err := c.Do(t.Context(), http.MethodPatch, "/api/v1/namespaces/"+ns, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}`); err != nil {
		t.Fatal(err)
	}
	cfg := account(t, c, ns, NetworkPolicy)
	cfg.Network = NetworkPolicy
	for _, check := range Doctor(t.Context(), driver.Env{Owner: "tests"}, cfg) {
		if !check.OK {
			t.Errorf("%s: %s", check.Name, check.Detail)
		}
	}
	s, err := open(t, cfg).Create(t.Context(), executor.Spec{})
	if err == nil {
		s.Close()
		t.Fatal("created")
	}
	var e *executor.Error
	if !errors.Is(err, executor.ErrUnsupported) || !errors.As(err, &e) || e.Ran != executor.RanNo || !strings.Contains(err.Error(), "does not enforce") {
		t.Errorf("got %v", err)
	}
}
