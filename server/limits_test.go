package server

import (
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// The Spec of the operator bounds runs unless the operator gives clients more, and is the default
// of runs without a timeout.
func TestLongestRun(t *testing.T) {
	x, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for name, c := range map[string]struct {
		run, most, timeout time.Duration
		longest, dflt      time.Duration
	}{
		"nothing":   {0, 0, 0, DefaultMaxTimeout, executor.DefaultWallTime},
		"ceiling":   {0, 10 * time.Second, 0, 10 * time.Second, 10 * time.Second},
		"default":   {5 * time.Second, 0, 0, 5 * time.Second, 5 * time.Second},
		"both":      {5 * time.Second, 10 * time.Second, 0, 10 * time.Second, 5 * time.Second},
		"raised":    {5 * time.Second, 10 * time.Second, time.Minute, time.Minute, 5 * time.Second},
		"lowered":   {0, time.Minute, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		"unlimited": {executor.NoLimit, executor.NoLimit, 0, DefaultMaxTimeout, DefaultMaxTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			spec := executor.Spec{Run: executor.RunLimits{WallTime: c.run}, MaxRun: executor.RunLimits{WallTime: c.most}}
			longest := c.timeout
			if err := LongestRun("test", x, &spec, &longest); err != nil {
				t.Fatal(err)
			}
			if got := DefaultRun(spec, longest); longest != c.longest || got != c.dflt {
				t.Errorf("got at most %v and by default %v, want %v and %v", longest, got, c.longest, c.dflt)
			}
		})
	}
}

// The idle TTL of the operator's Spec is that of sessions, unless the operator gives clients more.
func TestLongestIdle(t *testing.T) {
	var keys Keys
	if err := keys.Add("key-of-alice-0123456789", Client{Subject: "alice"}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ spec, most, want time.Duration }{
		"nothing": {0, 0, DefaultMaxIdle}, "spec": {5 * time.Minute, 0, 5 * time.Minute}, "raised": {5 * time.Minute, time.Hour, time.Hour},
	} {
		got, err := Config{Keys: keys, Spec: executor.Spec{IdleTTL: c.spec}, MaxIdle: c.most}.withDefaults(fake.All())
		if err != nil || got.MaxIdle != c.want {
			t.Errorf("%s: got %v, %v, want %v", name, got.MaxIdle, err, c.want)
		}
	}
}
