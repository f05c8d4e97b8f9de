package all_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// cluster is the name of the backend of a real cluster in the configurations of these tests.
const cluster = "cluster"

// TestKubernetes is what two backends show of which one is a real cluster: programs do the same,
// and conversations move there.
func TestKubernetes(t *testing.T) {
	c, err := kubetest.Open(t.Context(), dockertest.Python)
	if errors.Is(err, kubetest.ErrMissing) {
		t.Skip(err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, c.Stop()) })
	host, err := dockertest.Host()
	check(t, err)
	namespace, err := c.NewNamespace(t.Context())
	check(t, err)
	settings := map[string]string{
		box:     fmt.Sprintf("type: docker, host: %q, image: %q, pull: never", host, dockertest.Python),
		cluster: fmt.Sprintf("type: kubernetes, kubeconfig: %q, namespace: %s, image: %q, pull: never, requests: 0.02", c.Kubeconfig, namespace, dockertest.Python),
	}
	t.Run("parity", func(t *testing.T) { clusterParity(t, settings) })
	t.Run("drill", func(t *testing.T) { clusterDrill(t, settings) })
	// What a closed session leaves is there for a moment.
	waittest.Until(t, "nothing is left at the node", func() error {
		left, err := c.Containers()
		check(t, err)
		if len(left) > 0 {
			return fmt.Errorf("%q are", left)
		}
		return nil
	})
}

// twoBackends is the configuration of Docker and the cluster, with the weights of new sessions.
func twoBackends(t *testing.T, settings map[string]string, more string, toBox, toCluster int) backends.Config {
	t.Helper()
	cfg, err := backends.Parse(fmt.Appendf(nil, "backends:\n  box: {%s%s}\n  cluster: {%s%s}\nroutes: [{name: all, split: [{backend: box, weight: %d}, {backend: cluster, weight: %d}]}]\n",
		settings[box], more, settings[cluster], more, toBox, toCluster))
	check(t, errors.Join(err, cfg.Check(all.Registry())))
	return cfg
}

// clusterParity runs a sample of the corpus, and of generated programs, on both, and as scripts in
// the container.
func clusterParity(t *testing.T, settings map[string]string) {
	b, err := backends.Open(t.Context(), driver.Env{Owner: "cluster-parity"}, all.Registry(), twoBackends(t, settings, ", languages: [python, javascript]", 1, 1))
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	var both []executor.Executor
	for _, name := range []string{box, cluster} {
		x, ok := b.Backend(name)
		if !ok {
			t.Fatalf("no backend %s", name)
		}
		both = append(both, x)
	}
	compared(t, both, append(programs(t, 10), generate(*seed, generated)[:20]...))
}

// movers is how many move in clusterDrill, some speaking at a time.
const movers, speaking = 100, 4

// talk is one of them.
type talk struct {
	subject  string
	old, new executor.Session // on Docker, and on the cluster
}

// clusterDrill moves conversations from Docker to the cluster by a change of the configuration,
// while others talk: no turn fails, the sessions that there are go on where they are, and each new
// one is on the cluster.
func clusterDrill(t *testing.T, settings map[string]string) {
	const queue = ", broker: {queue: {max: 120, wait: 5m}}"
	b, err := backends.Open(t.Context(), driver.Env{Owner: "cluster-drill"}, all.Registry(), twoBackends(t, settings, queue, 1, 0))
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	others := &load{t: t, box: b, ctx: ctx, talking: map[string]bool{}}
	others.broken.Store("")
	others.wg.Go(func() { others.user(0) })
	stop := sync.OnceFunc(func() { cancel(); others.wg.Wait() })
	defer stop()

	talks := make([]talk, movers)
	// each lets every conversation do something, some at a time.
	each := func(do func(*talk) error) {
		t.Helper()
		var some sync.WaitGroup
		for first := range speaking {
			some.Go(func() {
				for i := first; i < movers; i += speaking {
					if err := do(&talks[i]); err != nil {
						t.Errorf("conversation %d: %v", i, err)
						return
					}
				}
			})
		}
		some.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	begin := func(k *talk, on string) (executor.Session, error) {
		s, err := b.Create(t.Context(), executor.Spec{Subject: k.subject, Languages: []executor.Language{executor.Python}})
		if err != nil {
			return nil, err
		}
		if got := s.Info().Handle.Backend; got != on {
			return s, fmt.Errorf("a new session is on %s, want %s", got, on)
		}
		return s, say(t.Context(), s, "words = ["+fmt.Sprintf("%q", k.subject)+"]", "")
	}
	for i := range talks {
		talks[i].subject = fmt.Sprint("conversation-", i)
	}
	each(func(k *talk) (err error) {
		k.old, err = begin(k, box)
		return err
	})
	check(t, b.Reload(t.Context(), twoBackends(t, settings, queue, 0, 1)))
	each(func(k *talk) (err error) {
		if err := say(t.Context(), k.old, "print(words[0])", k.subject+"\n"); err != nil {
			return fmt.Errorf("in the old session: %w", err)
		}
		if err := k.old.Close(); err != nil {
			return err
		}
		k.new, err = begin(k, cluster)
		return err
	})
	each(func(k *talk) error { // all sessions are there at once
		if err := say(t.Context(), k.new, "print(words[0].upper())", strings.ToUpper(k.subject)+"\n"); err != nil {
			return fmt.Errorf("in the new session: %w", err)
		}
		return k.new.Close()
	})
	others.until(cluster, 2)
	stop()
	t.Logf("of the others %d conversations were on Docker and %d on the cluster\n%s", others.count(box), others.count(cluster), b.Stats())
	if others.count(box) == 0 {
		t.Error("nobody else has talked before the move")
	}
}

// say is a turn: code, and what it has to print.
func say(ctx context.Context, s executor.Session, code, want string) error {
	res, err := s.Run(ctx, executor.Request{Code: code}, nil)
	if err != nil {
		return err
	}
	if res.Status != executor.StatusOK || string(res.Stdout) != want {
		return fmt.Errorf("got %s, %q, want %q", res.Status, res.Stdout, want)
	}
	return nil
}
