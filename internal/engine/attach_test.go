package engine_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func ownedBy(owner string) func(*driver.Env) {
	return func(e *driver.Env) { e.Owner, e.Instance = owner, "other-process" }
}

func TestAttach(t *testing.T) {
	c := newCloud()
	s := create(t, c.open(t), executor.Spec{
		Languages: []executor.Language{executor.JavaScript}, Labels: map[string]string{"team": "a"},
		Run: executor.RunLimits{WallTime: time.Second}, MaxRun: executor.RunLimits{WallTime: time.Minute}, IdleTTL: time.Minute, MaxLife: 2 * time.Hour,
	})
	h, err := executor.ParseHandle(s.Info().Handle.String()) // it comes from a store
	if err != nil {
		t.Fatal(err)
	}
	h.Meta = map[string]string{"router.route": "r"}
	h.Fence = 4
	var seen executor.Handle
	c.attach = func(_ context.Context, h executor.Handle) (driver.Session, error) {
		seen = h
		return &fullSession{smallSession{c, c.boxes[h.Session]}}, nil
	}
	a, err := c.open(t, ownedBy("owner")).Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	i, want := a.Info(), s.Info()
	if i.Handle.Session != want.Handle.Session || i.Handle.Meta["router.route"] != "r" || i.Handle.Fence != 4 || seen.Fence != 4 {
		t.Errorf("got handle %+v", i.Handle)
	}
	if i.Run != want.Run || i.MaxRun != want.MaxRun || i.Handle.IdleTTL != time.Minute || i.Handle.MaxLife != 2*time.Hour || !i.Created.Equal(want.Created) {
		t.Errorf("got %+v, want %+v", i, want)
	}
	if ls := i.Capabilities.Languages; len(ls) != 1 || ls[0].Language != executor.JavaScript {
		t.Errorf("got languages %+v", ls)
	}
	if !maps.Equal(i.Labels, map[string]string{"team": "a"}) || i.Instance != "instance" {
		t.Errorf("got labels %v of instance %q, want those of the creator", i.Labels, i.Instance)
	}
	if r, err := a.Run(t.Context(), executor.Request{Code: "x"}, nil); err != nil || r.Status != executor.StatusOK {
		t.Errorf("got %+v %v", r, err)
	}
	if err := a.Detach(); err != nil {
		t.Error(err)
	}
	if c.count() != 1 {
		t.Error("detaching has destroyed the sandbox")
	}
}

func TestAttachRefuses(t *testing.T) {
	other := func(c *cloud, session string) driver.Session { return &fullSession{smallSession{c, &box{id: session}}} }
	for name, c := range map[string]struct {
		lacks  []executor.Feature
		edit   func(c *cloud, h *executor.Handle)
		owner  string
		attach func(c *cloud) (driver.Session, error)
		kind   error
		text   string
	}{
		"gone":          {edit: func(c *cloud, h *executor.Handle) { h.Session = "box-gone" }, kind: executor.ErrNotFound},
		"dead":          {edit: func(c *cloud, h *executor.Handle) { c.boxes[h.Session].state = executor.SessionDead }, kind: executor.ErrNotFound},
		"other-owner":   {owner: "somebody", kind: executor.ErrNotFound},
		"no-owner":      {edit: func(c *cloud, h *executor.Handle) { c.boxes[h.Session].labels = nil }, kind: executor.ErrNotFound},
		"other-type":    {edit: func(_ *cloud, h *executor.Handle) { h.Type = "docker" }, kind: executor.ErrInvalid},
		"no-session":    {edit: func(_ *cloud, h *executor.Handle) { h.Session = "" }, kind: executor.ErrInvalid},
		"negative":      {edit: func(_ *cloud, h *executor.Handle) { h.MaxRun.OutputBytes = -1 }, kind: executor.ErrInvalid},
		"huge":          {edit: func(_ *cloud, h *executor.Handle) { h.Meta = map[string]string{"a": strings.Repeat("x", 9000)} }, kind: executor.ErrTooLarge},
		"fence":         {lacks: []executor.Feature{executor.FeatureFencing}, edit: func(_ *cloud, h *executor.Handle) { h.Fence = 1 }, kind: executor.ErrUnsupported, text: "fencing"},
		"unsupported":   {lacks: []executor.Feature{executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList}, kind: executor.ErrUnsupported, text: "attach"},
		"fenced-out":    {attach: func(*cloud) (driver.Session, error) { return nil, driver.Fail(executor.ErrClosed, executor.RanNo, nil) }, kind: executor.ErrClosed},
		"other-session": {attach: func(c *cloud) (driver.Session, error) { return other(c, "box-other"), nil }, kind: executor.ErrInternal, text: "box-other"},
		"no-detacher":   {attach: func(c *cloud) (driver.Session, error) { return &smallSession{c, &box{id: "box-other"}}, nil }, kind: executor.ErrInternal, text: "attach"},
		"stuck": {attach: func(c *cloud) (driver.Session, error) {
			c.detach = func() error { return errReset }
			return other(c, "box-other"), nil
		}, kind: executor.ErrInternal, text: "box-other"},
		"nothing": {attach: func(*cloud) (driver.Session, error) { return nil, nil }, kind: executor.ErrInternal},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCloud()
			s := create(t, cl.open(t), executor.Spec{})
			cl.caps = without(full, c.lacks...)
			if c.attach != nil {
				cl.attach = func(context.Context, executor.Handle) (driver.Session, error) { return c.attach(cl) }
			}
			h := s.Info().Handle
			if c.edit != nil {
				c.edit(cl, &h)
			}
			if c.owner == "" {
				c.owner = "owner"
			}
			a, err := cl.openAs(t, c.owner).Attach(t.Context(), h)
			wantError(t, err, "attach", c.kind, executor.RanNo)
			if a != nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v and %v", a, err)
			}
			if cl.count() != 1 {
				t.Error("the sandbox was destroyed")
			}
		})
	}
}

// openAs opens the cloud as another process of an owner.
func (c *cloud) openAs(t testing.TB, owner string) executor.Executor {
	return c.open(t, ownedBy(owner))
}

// TestHandleCannotRaiseLimits tests that what a forged handle says about limits ends at those of
// the backend.
func TestHandleCannotRaiseLimits(t *testing.T) {
	c := newCloud()
	c.caps.MaxRun = executor.RunLimits{WallTime: time.Minute, OutputBytes: 32 << 20}
	x := c.open(t)
	h := create(t, x, executor.Spec{}).Info().Handle
	for name, l := range map[string]struct{ run, maxRun, wantRun, wantMax executor.RunLimits }{
		"honest": {
			executor.RunLimits{WallTime: time.Second, OutputBytes: 5}, executor.RunLimits{WallTime: 2 * time.Second, OutputBytes: 6},
			executor.RunLimits{WallTime: time.Second, OutputBytes: 5}, executor.RunLimits{WallTime: 2 * time.Second, OutputBytes: 6},
		},
		"zero": {
			executor.RunLimits{}, executor.RunLimits{},
			executor.RunLimits{WallTime: 30 * time.Second, OutputBytes: 16 << 20}, executor.RunLimits{WallTime: 30 * time.Second, OutputBytes: 16 << 20},
		},
		"forged": {
			executor.RunLimits{WallTime: time.Hour, OutputBytes: 1 << 40}, executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 50},
			executor.RunLimits{WallTime: 30 * time.Second, OutputBytes: 16 << 20}, c.caps.MaxRun,
		},
		"contradiction": {
			executor.RunLimits{WallTime: 50 * time.Second}, executor.RunLimits{WallTime: 10 * time.Second},
			executor.RunLimits{WallTime: 10 * time.Second, OutputBytes: 16 << 20}, executor.RunLimits{WallTime: 10 * time.Second, OutputBytes: 16 << 20},
		},
	} {
		h.Run, h.MaxRun = l.run, l.maxRun
		s, err := x.Attach(t.Context(), h)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if i := s.Info(); i.Run != l.wantRun || i.MaxRun != l.wantMax {
			t.Errorf("%s: got %+v and %+v, want %+v and %+v", name, i.Run, i.MaxRun, l.wantRun, l.wantMax)
		}
	}
}

// TestAttachWithoutLanguages tests sandboxes of which nobody says what they can run.
func TestAttachWithoutLanguages(t *testing.T) {
	for name, c := range map[string]struct {
		lacks []executor.Feature
		want  int
	}{"mixed": {nil, 2}, "one": {[]executor.Feature{executor.FeatureMixedLanguages}, 1}} {
		cl := newCloud()
		cl.caps = without(full, c.lacks...)
		x := cl.open(t)
		h := create(t, x, executor.Spec{}).Info().Handle
		delete(cl.boxes[h.Session].labels, driver.LabelLanguages)
		s, err := x.Attach(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(s.Info().Capabilities.Languages); got != c.want {
			t.Errorf("%s: got %d languages, want %d", name, got, c.want)
		}
	}
}

// TestAttachToALostLanguage tests a session whose language the configuration has lost since: it can
// be looked at and destroyed.
func TestAttachToALostLanguage(t *testing.T) {
	c := newCloud()
	h := create(t, c.open(t), executor.Spec{}).Info().Handle
	c.caps.Languages = full.Languages[1:]
	s, err := c.open(t).Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(t.Context(), executor.Request{Code: "x"}, nil)
	wantError(t, err, "run", executor.ErrUnsupported, executor.RanNo)
	_, err = s.Install(t.Context(), executor.Packages{Names: []string{"x"}}, nil)
	wantError(t, err, "install", executor.ErrUnsupported, executor.RanNo)
	if err := s.Close(); err != nil || c.count() != 0 {
		t.Errorf("got %v and %d sandboxes", err, c.count())
	}
}

func TestDestroy(t *testing.T) {
	for name, c := range map[string]struct {
		lacks []executor.Feature
		held  bool // by the Executor that destroys
		owner string
		edit  func(c *cloud, h *executor.Handle)
		kind  error
		left  int
	}{
		"another-process":  {},
		"dead":             {edit: func(c *cloud, h *executor.Handle) { c.boxes[h.Session].state = executor.SessionDead }},
		"gone":             {edit: func(_ *cloud, h *executor.Handle) { h.Session = "box-gone" }, left: 1},
		"held":             {held: true},
		"held-no-attach":   {held: true, lacks: []executor.Feature{executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList}},
		"unsupported":      {lacks: []executor.Feature{executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList}, kind: executor.ErrUnsupported, left: 1},
		"another-owner":    {owner: "somebody", kind: executor.ErrNotFound, left: 1},
		"another-type":     {edit: func(_ *cloud, h *executor.Handle) { h.Type = "docker" }, kind: executor.ErrInvalid, left: 1},
		"cannot":           {edit: func(c *cloud, _ *executor.Handle) { c.destroy = failOnce(c) }, kind: executor.ErrUnavailable, left: 1},
		"cannot-when-held": {held: true, edit: func(c *cloud, _ *executor.Handle) { c.destroy = failOnce(c) }, kind: executor.ErrUnavailable, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCloud()
			cl.caps = without(full, c.lacks...)
			x := cl.open(t)
			s := create(t, x, executor.Spec{})
			h := s.Info().Handle
			if c.edit != nil {
				c.edit(cl, &h)
			}
			if !c.held {
				if c.owner == "" {
					c.owner = "owner"
				}
				x = cl.openAs(t, c.owner)
			}
			err := x.Destroy(t.Context(), h)
			if c.kind == nil && err != nil {
				t.Errorf("got %v", err)
			} else if c.kind != nil {
				op := "destroy"
				wantError(t, err, op, c.kind, executor.RanNo)
			}
			if cl.count() != c.left {
				t.Errorf("got %d sandboxes, want %d", cl.count(), c.left)
			}
			if c.held && c.kind == nil {
				_, err := s.Run(t.Context(), code, nil)
				wantError(t, err, "run", executor.ErrClosed, executor.RanNo)
			}
		})
	}
}

// failOnce returns a destroy that fails the first time.
func failOnce(c *cloud) func(context.Context, string) error {
	n := 0
	return func(context.Context, string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if n++; n == 1 {
			return driver.Fail(executor.ErrUnavailable, executor.RanMaybe, errReset)
		}
		return nil
	}
}

func TestDestroyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		h := create(t, c.open(t), executor.Spec{}).Info().Handle
		hang := true
		c.destroy = func(ctx context.Context, _ string) error {
			if hang {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		begin := time.Now()
		err := c.openAs(t, "owner").Destroy(t.Context(), h)
		wantError(t, err, "destroy", executor.ErrUnavailable, executor.RanNo)
		if got := time.Since(begin); got != quick.CleanupTimeout {
			t.Errorf("got %v, want %v", got, quick.CleanupTimeout)
		}
		hang = false
	})
}

func TestSessions(t *testing.T) {
	c := newCloud()
	x := c.open(t)
	a := create(t, x, executor.Spec{Labels: map[string]string{"team": "a", "app": "x"}})
	b := create(t, x, executor.Spec{Labels: map[string]string{"team": "b"}})
	create(t, c.openAs(t, "somebody"), executor.Spec{Labels: map[string]string{"team": "a"}})
	c.boxes[b.Info().Handle.Session].state = executor.SessionDead
	c.foreign = []executor.SessionInfo{
		{Handle: executor.Handle{Session: "stray"}},
		{Handle: executor.Handle{Session: "error"}},
		{Labels: map[string]string{driver.LabelOwner: "owner", "team": "a"}}, // without a name
	}
	list := func(labels map[string]string) (names []string, errs int) {
		for i, err := range c.openAs(t, "owner").Sessions(t.Context(), labels) {
			if err != nil {
				wantError(t, err, "sessions", executor.ErrUnavailable, executor.RanNo)
				errs++
				continue
			}
			names = append(names, i.Handle.Session)
			if i.Handle.Backend != "cloud" || i.Handle.Type != "cloud" || i.Handle.Created.IsZero() || i.Instance != "instance" || len(i.Capabilities.Languages) != 0 {
				t.Errorf("got %+v", i)
			}
			for k := range i.Labels {
				if strings.HasPrefix(k, executor.ReservedPrefix) {
					t.Errorf("got label %q", k)
				}
			}
			if dead := i.State == executor.SessionDead; dead != (i.Handle.Session == b.Info().Handle.Session) {
				t.Errorf("got %+v", i)
			}
			if _, err := executor.ParseHandle(i.Handle.String()); err != nil {
				t.Errorf("got a handle without a text: %v", err)
			}
		}
		return names, errs
	}
	both := []string{a.Info().Handle.Session, b.Info().Handle.Session}
	slices.Sort(both)
	if got, errs := list(nil); !slices.Equal(got, both) || errs != 1 {
		t.Errorf("got %q and %d errors, want %q", got, errs, both)
	}
	if got, _ := list(map[string]string{"team": "a"}); !slices.Equal(got, both[slices.Index(both, a.Info().Handle.Session):][:1]) {
		t.Errorf("got %q", got)
	}
	if got, _ := list(map[string]string{"team": "a", "app": "y"}); got != nil {
		t.Errorf("got %q", got)
	}
	for range x.Sessions(t.Context(), nil) {
		break // must not be told of anything afterwards
	}
}

func TestSessionsRefuses(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		lacks  []executor.Feature
		labels map[string]string
		kind   error
	}{
		"unsupported": {t.Context(), []executor.Feature{executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList}, nil, executor.ErrUnsupported},
		"reserved":    {t.Context(), nil, map[string]string{driver.LabelOwner: "somebody"}, executor.ErrInvalid},
		"ended":       {ctx, nil, nil, context.Canceled},
	} {
		cl := newCloud()
		cl.caps = without(full, c.lacks...)
		n := 0
		for i, err := range cl.open(t).Sessions(c.ctx, c.labels) {
			n++
			wantError(t, err, "sessions", c.kind, executor.RanNo)
			if i.Handle.Session != "" {
				t.Errorf("%s: got %+v", name, i)
			}
		}
		if n != 1 {
			t.Errorf("%s: got %d elements, want 1", name, n)
		}
	}
}

func TestLookupErrors(t *testing.T) {
	c := newCloud()
	h := create(t, c.open(t), executor.Spec{}).Info().Handle
	d := lookupFails{fullDriver{partDriver{smallDriver{c}}}}
	x, err := driver.New(d, driver.Env{Owner: "owner"}, quick)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	_, err = x.Attach(t.Context(), h)
	wantError(t, err, "attach", executor.ErrAuth, executor.RanNo)
	err = x.Destroy(t.Context(), h)
	wantError(t, err, "destroy", executor.ErrAuth, executor.RanNo)
	if c.count() != 1 {
		t.Error("a sandbox was destroyed whose owner could not be asked for")
	}
}

type lookupFails struct{ fullDriver }

func (lookupFails) Lookup(context.Context, executor.Handle) (executor.SessionInfo, error) {
	return executor.SessionInfo{}, driver.Fail(executor.ErrAuth, executor.RanNo, errors.New("no key"))
}

// TestDestroyByAFencedHolder tests that a handle still destroys when the session held here was shut
// out by a later holder.
func TestDestroyByAFencedHolder(t *testing.T) {
	c := newCloud()
	x := c.open(t)
	h := create(t, x, executor.Spec{}).Info().Handle
	first := true
	c.destroy = func(context.Context, string) error {
		if first { // by the session; the driver's own needs no holder
			first = false
			return driver.Fail(executor.ErrClosed, executor.RanNo, nil)
		}
		return nil
	}
	if err := x.Destroy(t.Context(), h); err != nil || c.count() != 0 {
		t.Errorf("got %v and %d sandboxes", err, c.count())
	}
}
