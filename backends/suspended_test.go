package backends_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

const suspended = "backends: {a: {type: fake, on: a, broker: {pools: [{size: 1, suspended: true}]}}}"

func TestSuspendedIsRefused(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		_, err := backends.Open(w.Context(), driver.Env{Owner: "me"}, w.reg, parse(w.T, suspended))
		if !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "broker.pools[0]") {
			w.Errorf("got %v, want %v", err, executor.ErrUnsupported)
		}
	})
}

// The sessions of fake cannot be suspended, even if that is declared. So none is kept.
func TestSuspendedIsNotKeptRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := fake.New(fake.Options{})
		type config struct {
			On string `json:"on"`
		}
		reg := backends.NewRegistry(driver.NewFactory("fake", func(_ context.Context, env driver.Env, _ config) (executor.Executor, error) {
			return driver.New(at.Driver(), env, driver.Options{Type: "fake", Suspends: true})
		}, nil))
		b, err := backends.Open(t.Context(), driver.Env{Owner: "me"}, reg, parse(t, suspended))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // time of the bubble
		synctest.Wait()
		if st := b.Stats().Backends[0].Pools[0]; st.Warm != 0 || st.Failed == 0 || len(at.Sandboxes()) != 0 {
			t.Errorf("got %+v, want none kept", st)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}
