package engine

import (
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// TestMaxLifeOfTheBackend creates sessions that do not say how long they live.
func TestMaxLifeOfTheBackend(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute} {
		x := &exec{}
		x.info.Capabilities = executor.Capabilities{MaxLife: time.Hour, Languages: []executor.Runtime{{Language: executor.Python}}}
		c, info := x.resolve(executor.Spec{MaxLife: asked})
		if c.Spec.MaxLife != want || info.Handle.MaxLife != want {
			t.Errorf("%v: got %v, and %v in the handle", asked, c.Spec.MaxLife, info.Handle.MaxLife)
		}
	}
}
