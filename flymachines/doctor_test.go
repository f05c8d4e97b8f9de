package flymachines

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create(t, w.open(t, plain), executor.Spec{})
	for name, c := range map[string]struct {
		edit func(*Config)
		ok   bool
		want string // in what it says
	}{
		"good":      {func(*Config) {}, true, "1 Machines"},
		"proxy":     {func(c *Config) { c.Proxy = w.Edge }, true, "through " + w.Edge},
		"no-token":  {func(c *Config) { c.Token = driver.Secret{Env: "EXECBROKER_NO_SUCH_VARIABLE"} }, false, "not set"},
		"no-app":    {func(c *Config) { c.App = "another" }, false, "fly apps create another"},
		"not-there": {func(c *Config) { c.API = "http://127.0.0.1:1" }, false, "can be reached from here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := w.config()
			c.edit(&cfg)
			ok, said := true, ""
			for _, check := range Doctor(t.Context(), driverEnv(w), cfg) {
				ok = ok && check.OK
				said += check.Name + ": " + check.Detail + ": " + check.Fix + "\n"
			}
			if ok != c.ok || !strings.Contains(said, c.want) {
				t.Errorf("got %t, %s, want %t and %q", ok, said, c.ok, c.want)
			}
		})
	}
}
