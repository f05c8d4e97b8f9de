package all_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/tool"
)

// TestLearn checks that the definition of the tool says what the sandboxes of every backend
// contain, and what all of them have in common.
func TestLearn(t *testing.T) {
	t.Parallel()
	f := newFour(t)
	var file strings.Builder
	for _, name := range []string{local, box, cloud, machines} {
		languages := ", languages: [python, javascript]"
		if name == local {
			languages = ""
		}
		fmt.Fprintf(&file, "  %s: {%s%s}\n", name, f.settings[name], languages)
	}
	cfg, err := backends.Parse(fmt.Appendf(nil, "backends:\n%sroutes:\n  - {name: all, split: [{backend: local, weight: 1}, {backend: box, weight: 1}, {backend: cloud, weight: 0}], fallback: [machines]}\n", &file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: f.owner + "-learn"}, all.Registry(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for name, want := range map[string][]string{
		local:    {"python is 3.14.", "javascript is ECMAScript without Node.js.", "For python no packages are installed."},
		box:      {"python is 3.13.", "javascript is Node.js 20.", "Installed for python: numpy 2.", "pandas 2.", "matplotlib 3.", "among them are python3, node"},
		cloud:    {"python is 3.13.", "javascript is Node.js 20.", "Installed for python: numpy 2.", "among them are python3, node"},
		machines: {"python is 3.13.", "javascript is Node.js 20.", "Installed for python: numpy 2.", "among them are python3, node"},
		"":       {"source text.The"}, // nothing that all have in common
	} {
		x, ok := b.Backend(name)
		if !ok {
			x = b
		}
		tl, err := tool.New(x, b.Manager(), tool.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := tl.Learn(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		d := tl.Definition()
		got := d.Input.Properties["code"].Description + d.Input.Properties["language"].Description
		t.Logf("%s: %s\n%s", name, d.Description, got)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %q, want %q in it", name, got, part)
			}
		}
		if name == "" && strings.Contains(got, "is 3.") {
			t.Errorf("got %q, though versions differ", got)
		}
	}
	for _, arm := range b.Stats().Arms {
		if arm.Turns > 0 {
			t.Errorf("asking counts as %d turns of users on %s", arm.Turns, arm.Backend)
		}
	}
}
