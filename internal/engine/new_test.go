package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestNewRefuses(t *testing.T) {
	with := func(fs ...executor.Feature) executor.Capabilities {
		c := small
		c.Features = append(append([]executor.Feature(nil), small.Features...), fs...)
		return c
	}
	runtimes := func(rs ...executor.Runtime) executor.Capabilities {
		c := small
		c.Languages = rs
		return c
	}
	ok := driver.Env{Owner: "owner"}
	opts := driver.Options{Type: "cloud"}
	for name, c := range map[string]struct {
		caps executor.Capabilities
		env  driver.Env
		opts driver.Options
		want string // "" : accepted
	}{
		"small":            {small, ok, opts, ""},
		"own-feature":      {with("x-own"), ok, opts, ""},
		"no-type":          {small, ok, driver.Options{}, "Type is empty"},
		"no-owner":         {small, driver.Env{}, opts, "Owner is empty"},
		"odd-owner":        {small, driver.Env{Owner: "a\nb"}, opts, "Owner"},
		"odd-instance":     {small, driver.Env{Owner: "a", Instance: strings.Repeat("i", 256)}, opts, "Instance"},
		"negative-timeout": {small, ok, driver.Options{Type: "cloud", Grace: -1}, "Grace is negative"},
		"no-language":      {runtimes(), ok, opts, "no language"},
		"no-code":          {executor.Capabilities{Languages: small.Languages}, ok, opts, "code"},
		"language-twice":   {runtimes(executor.Runtime{Language: "a"}, executor.Runtime{Language: "a"}), ok, opts, "repeated"},
		"language-comma":   {runtimes(executor.Runtime{Language: "a,b"}), ok, opts, "no name"},
		"unknown-feature":  {with("fly"), ok, opts, "fly is unknown"},
		"wrong-place":      {with(executor.FeatureState), ok, opts, "state is unknown or in the wrong place"},
		"wrong-place-too":  {runtimes(executor.Runtime{Language: "a", Features: []executor.Feature{executor.FeatureCommand}}), ok, opts, "command"},
		"attach-undone":    {with(executor.FeatureAttach), ok, opts, "attach and Attacher"},
		"list-undone":      {with(executor.FeatureList), ok, opts, "list and Lister"},
		"fencing-alone":    {with(executor.FeatureFencing), ok, opts, "fencing needs attach"},
	} {
		cl := newCloud()
		cl.caps = c.caps
		x, err := driver.New(smallDriver{cl}, c.env, c.opts)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: got %v", name, err)
			} else if err := x.Close(); err != nil {
				t.Errorf("%s: closing: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || x != nil {
			t.Errorf("%s: got %v, %v, want %q", name, x, err, c.want)
		}
		if cl.closes() != 0 {
			t.Errorf("%s: the driver was closed", name)
		}
	}
	if x, err := driver.New(nil, ok, opts); err == nil || x != nil {
		t.Errorf("no driver: got %v %v", x, err)
	}
	cl := newCloud()
	cl.caps = without(full, executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList)
	if _, err := driver.New(fullDriver{partDriver{smallDriver{cl}}}, ok, opts); err == nil || !strings.Contains(err.Error(), "Attacher disagree") || !strings.Contains(err.Error(), "Lister disagree") {
		t.Errorf("implemented, but not declared: got %v, want all mistakes", err)
	}
}

func TestInfo(t *testing.T) {
	c := newCloud()
	if i := c.open(t).Info(); i.Name != "cloud" || i.Type != "cloud" || len(i.Capabilities.Languages) != 2 {
		t.Errorf("got %+v, want the type as its name", i)
	}
	if i := c.open(t, func(e *driver.Env) { e.Name = "production" }).Info(); i.Name != "production" || i.Type != "cloud" {
		t.Errorf("got %+v", i)
	}
}

func TestWrap(t *testing.T) {
	c := newCloud()
	c.caps = small
	x, err := driver.New(smallDriver{c}, driver.Env{Owner: "o", Wrap: func(d driver.Driver) driver.Driver { return broken{d} }}, driver.Options{Type: "cloud"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	_, err = x.Create(t.Context(), executor.Spec{})
	wantError(t, err, "create", executor.ErrAuth, executor.RanNo)
}

type broken struct{ driver.Driver }

func (broken) Create(context.Context, *driver.Create) (driver.Session, error) {
	return nil, driver.Fail(executor.ErrAuth, executor.RanMaybe, nil)
}

func TestEnv(t *testing.T) {
	dir := t.TempDir()
	if got, err := (driver.Env{CacheDir: dir}).Cache(); got != dir || err != nil {
		t.Errorf("got %q %v", got, err)
	}
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	if got, err := (driver.Env{}).Cache(); !strings.HasPrefix(got, dir) || err != nil {
		t.Errorf("got %q %v", got, err)
	}
	(driver.Env{}).Logger().Error("goes nowhere")
}

// TestOptionsDefaults tests the defaults by what they do: the start timeout, as one of them.
func TestOptionsDefaults(t *testing.T) {
	c := newCloud()
	c.caps = small
	c.create = func(ctx context.Context, _ *driver.Create) error {
		end, ok := ctx.Deadline()
		if left := time.Until(end); !ok || left > time.Minute || left < 50*time.Second {
			t.Errorf("got %v %v for an attempt, want a minute", left, ok)
		}
		return nil
	}
	x, err := driver.New(smallDriver{c}, driver.Env{Owner: "o"}, driver.Options{Type: "cloud"})
	if err != nil {
		t.Fatal(err)
	}
	create(t, x, executor.Spec{})
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}
