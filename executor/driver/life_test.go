package driver_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
)

func TestLife(t *testing.T) {
	for text, want := range map[string]struct {
		max  time.Duration
		back string
	}{
		`null`: {24 * time.Hour, `"0s"`}, `"90m"`: {90 * time.Minute, `"1h30m0s"`}, `"none"`: {0, `"none"`},
	} {
		var l driver.Life
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Max() != want.max {
			t.Errorf("%s: got %v, %v", text, l.Max(), err)
		}
		if back, err := json.Marshal(l); err != nil || string(back) != want.back {
			t.Errorf("%s: got %s, %v", text, back, err)
		}
	}
	for _, text := range []string{`"0s"`, `"-1s"`, `90`, `"90"`, `"never"`, `""`, `{}`} {
		var l driver.Life
		if err := json.Unmarshal([]byte(text), &l); err == nil {
			t.Errorf("%s: got %v", text, l.Max())
		}
	}
}
