package all_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/conformance/parity"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// TestShadowDrill: conversations on Docker are repeated on Pyodide. What really differs there is
// found, also what is documented, and its examples differ again when they are run. Code that says
// something else each time is not found.
func TestShadowDrill(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf(`
backends: {box: {type: docker, host: %q, image: %q, pull: never}, local: {type: pyodide}}
routes: [{name: r, split: [{backend: box, weight: 1}]}]
shadows: {r: {to: local, share: 100%%, when: {shadow: allowed}, most: 1000/min, budget: 5/day, at_once: 6, control: 50%%, keep: {code: true, output: true}}}
sessions: {store: %q}`, host, dockertest.Python, "sqlite:"+filepath.Join(t.TempDir(), "s.db"))
	owner := fmt.Sprint("shadow-drill-", rand.Uint32())
	b, err := openFile(t.Context(), owner, "replica", file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	const (
		system = "import sys\nprint(sys.platform)"
		number = "open('/nothing')"
		chance = "import random\nprint(random.random())"
		equal  = "print(open('in.txt').read(), sum(x))"
	)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var r backends.ShadowReport
	const each = 14
	conversations := 0
	for range each {
		for _, last := range []string{system, number, chance, equal} {
			mirrored(t, b, "x = [1, 2]\nx", last)
			conversations++
			for over := 0; over < conversations-3; { // so that none leaves because too many are repeated at once
				all, err := b.Shadows(ctx)
				if err != nil {
					t.Fatal(err)
				}
				over, r = 0, all[0]
				for _, n := range r.Left {
					over += int(n)
				}
				pause(ctx, 20*time.Millisecond)
			}
		}
	}
	for r.Left["differed"]+r.Left["ended"] < 4*each {
		all, err := b.Shadows(ctx)
		if err != nil {
			t.Fatalf("got %+v, %v", r, err)
		}
		r = all[0]
		pause(ctx, 20*time.Millisecond)
	}
	found := map[string]backends.ShadowClass{}
	for _, c := range r.Classes {
		t.Logf("%s: %d of %d, control %d of %d, %+v", c.Class, c.Shadow, r.Arms[0].Conversations, c.Control, r.Arms[1].Conversations, c.Excess)
		found[c.Class] = c
	}
	t.Logf("left %v, excluded %v", r.Left, r.Excluded)
	documented := found["explained: the numbers of errors of the operating system are those of its C library"]
	if documented.Shadow == 0 || documented.Control > 0 {
		t.Errorf("the documented difference: got %+v", documented)
	}
	// By chance on both, and by the system on the other one alone.
	if c := found["stdout differs"]; c.Control == 0 || c.Shadow+c.Control <= each || c.Shadow+c.Control > 2*each {
		t.Errorf("the other differences: got %+v", c)
	}
	if len(r.Classes) != 2 {
		t.Errorf("got %+v", r.Classes)
	}

	cfg, err := backends.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	store, closer, err := cfg.Sessions.OpenStore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	kept, err := backends.ReadShadowExamples(ctx, store, cfg, "r")
	if err != nil || len(kept) < 2 {
		t.Fatalf("got %d examples, %v", len(kept), err)
	}
	var lines bytes.Buffer
	for _, x := range kept {
		fmt.Fprintf(&lines, "%s\n", x.Program)
	}
	programs, err := parity.ReadLines(&lines)
	if err != nil {
		t.Fatal(err)
	}
	box, _ := b.Backend("box")
	local, _ := b.Backend("local")
	report, err := parity.Run(ctx, parity.Options{Backends: []executor.Executor{box, local}}, programs)
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Totals["local"][parity.Same]; n > 0 {
		t.Errorf("%d examples do not differ: %+v", n, report.Programs)
	}
}

// mirrored has a conversation with a file, and ends it.
func mirrored(t *testing.T, b *backends.Broker, code ...string) {
	t.Helper()
	s, err := b.Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.Python}, Attributes: map[string]string{"shadow": "allowed"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Files().Write(t.Context(), "in.txt", strings.NewReader("text"), 0); err != nil {
		t.Error(err)
	}
	for _, c := range code {
		if _, err := s.Run(t.Context(), executor.Request{Code: c}, nil); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
