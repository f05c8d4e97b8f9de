package driver_test

import (
	"context"
	"errors"
	"testing"

	"github.com/execbroker/execbroker/executor/driver"
)

func TestFactorySetup(t *testing.T) {
	type config struct {
		Image string `json:"image"`
	}
	plain := driver.NewFactory[config]("x", nil, nil)
	if plain.HasSetup() {
		t.Error("a factory without WithSetup has something to set up")
	}
	if err := plain.Setup(t.Context(), driver.Env{}, nil); err != nil {
		t.Errorf("got %v of a type with nothing to set up", err)
	}
	gone := errors.New("gone")
	var got []string
	f := driver.WithSetup(plain, func(_ context.Context, env driver.Env, c config) error {
		got = append(got, env.Name+" "+c.Image)
		return gone
	})
	if err := f.Setup(t.Context(), driver.Env{Name: "box"}, []byte(`{"image":"y"}`)); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	if err := f.Setup(t.Context(), driver.Env{Name: "box"}, []byte(`{"imgae":"y"}`)); err == nil || errors.Is(err, gone) {
		t.Errorf("got %v of wrong settings", err)
	}
	if len(got) != 1 || got[0] != "box y" {
		t.Errorf("got %q", got)
	}
	if f.Type() != "x" || !f.HasSetup() || plain.Setup(t.Context(), driver.Env{}, nil) != nil {
		t.Error("WithSetup changes what it should not")
	}
}
