package driver

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func TestLife(t *testing.T) {
	for text, want := range map[string]struct {
		max  time.Duration
		back string
	}{
		`null`: {24 * time.Hour, `"0s"`}, `"90m"`: {90 * time.Minute, `"1h30m0s"`}, `"none"`: {0, `"none"`},
	} {
		var l Life
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Max() != want.max {
			t.Errorf("%s: got %v, %v", text, l.Max(), err)
		}
		if back, err := json.Marshal(l); err != nil || string(back) != want.back {
			t.Errorf("%s: got %s, %v", text, back, err)
		}
	}
	for _, text := range []string{`"0s"`, `"-1s"`, `90`, `"90"`, `"never"`, `""`, `{}`} {
		var l Life
		if err := json.Unmarshal([]byte(text), &l); err == nil {
			t.Errorf("%s: got %v", text, l.Max())
		}
	}
}

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
