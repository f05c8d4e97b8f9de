package conformancetest

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

func TestFaultsAreSound(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	var seen []string
	for _, f := range Faults() {
		if !name.MatchString(f.Name) || slices.Contains(seen, f.Name) || f.Name == noFault {
			t.Errorf("%q: not a name, or repeated", f.Name)
		}
		seen = append(seen, f.Name)
		if f.Doc == "" || (f.Plant == nil) == (f.Above == nil) {
			t.Errorf("%s: want a Doc, and one of Plant and Above", f.Name)
		}
		for _, n := range f.Needs {
			if _, ok := n.Info(); !ok {
				t.Errorf("%s: needs %q, which is not a feature", f.Name, n)
			}
		}
	}
	// The faults that a suite of this kind must notice.
	for _, want := range []string{
		"stdin-ignored", "stdout-stderr-swapped", "state-kept-undeclared", "timeout-output-lost", "exit-124-as-timeout", "exit-137-as-memory",
		"events-out-of-order", "event-after-the-end", "clock-in-the-queue", "memory-limit-ignored", "network-open", "file-content-changed",
		"other-session-visible", "session-leaked", "secret-in-an-error", "run-repeated", "cancel-ignored", "started-as-not-run",
		"late-output-counted", "other-owner-accepted",
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("there is no fault %q", want)
		}
	}
}

// TestFaultsOfALittleBackend checks how many faults can be planted where there is neither attach
// nor a list nor a network.
func TestFaultsOfALittleBackend(t *testing.T) {
	c := fake.Without(fake.All(executor.Python), executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList, executor.FeatureKeepAlive,
		executor.FeatureCommand, executor.FeatureContexts, executor.FeatureParallelRuns, executor.FeatureNetworkFull,
		executor.FeatureNetworkAllowlist, executor.FeatureLimitCPU, executor.FeatureLimitProcesses, executor.FeatureSubprocess)
	n := 0
	for _, f := range Faults() {
		if _, ok := f.fits(c); ok {
			n++
		}
	}
	if n < 40 {
		t.Errorf("got %d faults, want at least 40", n)
	}
}

// TestWrapperIsTransparent checks that a wrapped driver has exactly the optional interfaces that
// driver.New looks for.
func TestWrapperIsTransparent(t *testing.T) {
	for name, features := range map[string][]executor.Feature{
		"all":       nil,
		"no-attach": {executor.FeatureAttach, executor.FeatureFencing},
		"no-list":   {executor.FeatureList},
		"neither":   {executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList},
	} {
		t.Run(name, func(t *testing.T) {
			b := fake.New(fake.Options{Capabilities: fake.Without(fake.All(), features...)})
			plain, wrapped := b.Driver(), plant(tamper{})(b.Driver())
			_, wantAttach := plain.(driver.Attacher)
			_, wantList := plain.(driver.Lister)
			_, attach := wrapped.(driver.Attacher)
			_, list := wrapped.(driver.Lister)
			if attach != wantAttach || list != wantList {
				t.Errorf("got attach %v and list %v, want %v and %v", attach, list, wantAttach, wantList)
			}
			x, err := fake.Open(plain, driver.Env{Wrap: plant(tamper{})})
			if err != nil {
				t.Fatal(err)
			}
			s, err := x.Create(t.Context(), executor.Spec{})
			if err != nil {
				t.Fatal(err)
			}
			var found *fake.Backend
			if !executor.As(s, &found) || found != b {
				t.Error("As does not get through")
			}
			if err := x.Close(); err != nil || len(b.Sandboxes()) > 0 {
				t.Errorf("got %v, and %v left", err, b.Sandboxes())
			}
		})
	}
}

// bare is a session that implements nothing optional.
type bare struct{ driver.Session }

// bareDriver makes bare sessions.
type bareDriver struct {
	driver.Driver
	caps executor.Capabilities
}

func (d bareDriver) Capabilities() executor.Capabilities { return d.caps }

func (d bareDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	s, err := d.Driver.Create(ctx, c)
	return bare{s}, err
}

// TestWrapperHidesNothing checks that what driver.New finds out about a session it finds out about
// a wrapped one.
func TestWrapperHidesNothing(t *testing.T) {
	little := fake.Without(fake.All(executor.Python), executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList,
		executor.FeatureState, executor.FeaturePackages, executor.FeatureFiles, executor.FeatureKeepAlive, executor.FeaturePorts)
	for name, c := range map[string]struct {
		add  executor.Feature
		want error
	}{
		"nothing":    {"", nil},
		"keep-alive": {executor.FeatureKeepAlive, executor.ErrInternal},
	} {
		t.Run(name, func(t *testing.T) {
			caps := cloneCapabilities(little)
			if c.add != "" {
				caps.Features = append(caps.Features, c.add)
			}
			b := fake.New(fake.Options{Capabilities: caps})
			x, err := fake.Open(bareDriver{b.Driver(), caps}, driver.Env{Wrap: plant(tamper{})})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			if _, err = x.Create(t.Context(), executor.Spec{}); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got, want := len(b.Sandboxes()), 1; c.want != nil && got != 0 || c.want == nil && got != want {
				t.Errorf("got %d sandboxes", got)
			}
		})
	}
	d := plant(tamper{})(bareDriver{fake.New(fake.Options{}).Driver(), little})
	s, err := d.Create(t.Context(), &driver.Create{ID: "x", Spec: executor.Spec{Languages: []executor.Language{executor.Python}, IdleTTL: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy(context.WithoutCancel(t.Context()))
	if _, ok := s.(driver.KeepAliver); ok {
		t.Error("a wrapped session keeps alive, the session does not")
	}
	if i, err := s.(driver.Refresher).Refresh(t.Context()); err != nil || i.Handle.Session != "x" {
		t.Errorf("got %+v, %v of a session that does not refresh, want its Info", i, err)
	}
}

func TestLabelFilterFaultListsAll(t *testing.T) {
	i := slices.IndexFunc(Faults(), func(f Fault) bool { return f.Name == "label-filter-ignored" })
	b := fake.New(fake.Options{})
	x, err := fake.Open(b.Driver(), driver.Env{Wrap: Faults()[i].Plant})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := x.Create(t.Context(), executor.Spec{Labels: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	if got := count(x.Sessions(t.Context(), map[string]string{"a": "other"})); got != 1 {
		t.Errorf("got %d sessions, want the fault to show the one that does not fit", got)
	}
}

func count(seq iter.Seq2[executor.SessionInfo, error]) (n int) {
	for range seq {
		n++
	}
	return n
}

// TestRelevant checks that what it names are cases.
func TestRelevant(t *testing.T) {
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		cases := Relevant(l, 12)
		for _, f := range Faults() {
			got := cases(f.Name)
			if len(got) < 7 || len(got) > 2+12+len(controls) {
				t.Errorf("%s: got %d cases", f.Name, len(got))
			}
			for _, id := range got {
				if !slices.ContainsFunc(conformance.Cases(l), func(c conformance.Case) bool {
					return c.ID == id || id == "leaks/*" && c.ID == "leaks/goroutines"
				}) {
					t.Errorf("%s: %s is not a case for %s", f.Name, id, l)
				}
			}
		}
	}
}
