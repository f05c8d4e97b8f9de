package driver_test

import (
	"context"
	"errors"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// bare is a driver without anything optional.
type bare struct {
	created *driver.Create
	closed  bool
}

func (b *bare) Capabilities() executor.Capabilities {
	return executor.Capabilities{
		Features:  []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone},
		Languages: []executor.Runtime{{Language: executor.Python}},
	}
}

func (b *bare) Create(_ context.Context, c *driver.Create) (driver.Session, error) {
	b.created = c
	if c.Spec.Template != "" {
		return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("no such template"))
	}
	return bareSession{}, nil
}

func (b *bare) Close() error { b.closed = true; return nil }

type bareSession struct{}

func (bareSession) Info() executor.SessionInfo {
	return executor.SessionInfo{Handle: executor.Handle{Session: "s"}}
}

func (bareSession) Run(_ context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if err := emit(executor.Event{Kind: executor.EventStarted}); err != nil {
		return driver.Exit{}, err
	}
	return driver.Exit{Code: 3}, nil
}

func (bareSession) Destroy(context.Context) error { return nil }

// TestNew runs a driver that has only what each has. All else about New is tested with the engine.
func TestNew(t *testing.T) {
	if x, err := driver.New(nil, driver.Env{Owner: "o"}, driver.Options{Type: "bare"}); err == nil || x != nil {
		t.Errorf("got %v, %v without a driver", x, err)
	}
	b := &bare{}
	env := driver.Env{Owner: "o", Wrap: func(driver.Driver) driver.Driver { return b }}
	x, err := driver.New(&bare{}, env, driver.Options{Type: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	if name := x.Info().Name; name != "bare" {
		t.Errorf("got the name %q, want the type", name)
	}
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if l := b.created.Labels; l[driver.LabelOwner] != "o" || l[driver.LabelID] != b.created.ID || l[driver.LabelInstance] == "" {
		t.Errorf("got the labels %v and the ID %s", l, b.created.ID)
	}
	r, err := s.Run(t.Context(), executor.Request{Code: "x"}, nil)
	if err != nil || r.Status != executor.StatusFailed || r.ExitCode != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := s.Files().Mkdir(t.Context(), "a"); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("files: got %v, want %v", err, executor.ErrUnsupported)
	}
	if err := x.Close(); err != nil || !b.closed {
		t.Errorf("got %v, closed: %t", err, b.closed)
	}
}
