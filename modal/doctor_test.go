package modal

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestDoctor(t *testing.T) {
	w := newWorld(t)
	create(t, w.open(t, plain), executor.Spec{})
	made := w.Counts()
	for name, c := range map[string]struct {
		url  string
		edit func(*Config)
		ok   bool
		want string // in what it says
	}{
		"good":      {w.URL(), func(*Config) {}, true, "1 Sandboxes"},
		"vm":        {w.URL(), func(*Config) {}, true, "isolation: microvm"},
		"gvisor":    {w.URL(), func(c *Config) { c.Runtime = "" }, true, "isolation: gvisor"},
		"no-app":    {w.URL(), func(c *Config) { c.App = "another" }, true, "the first session makes it"},
		"no-token":  {w.URL(), func(c *Config) { c.TokenID = driver.Secret{Env: "EXECBROKER_NO_SUCH_VARIABLE"} }, false, "not set"},
		"not-token": {w.URL(), func(c *Config) { c.TokenID = c.TokenSecret }, false, "modal token new"},
		"not-there": {"http://127.0.0.1:1", func(*Config) {}, false, "can be reached from here"},
		"foreign":   {"https://evil.example", func(*Config) {}, false, "variable MODAL_SERVER_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(serverVariable, c.url)
			cfg := w.config()
			c.edit(&cfg)
			ok, said := true, ""
			for _, check := range Doctor(t.Context(), w.env(), cfg) {
				ok = ok && check.OK
				said += check.Name + ": " + check.Detail + ": " + check.Fix + "\n"
			}
			if ok != c.ok || !strings.Contains(said, c.want) {
				t.Errorf("got %t, %s, want %t and %q", ok, said, c.ok, c.want)
			}
		})
	}
	if now := w.Counts(); now["sandboxes"] != made["sandboxes"] || now["processes"] != made["processes"] {
		t.Errorf("got %v, want that nothing was made", now)
	}
}
