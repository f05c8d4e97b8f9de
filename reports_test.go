package execbroker_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// reported is a report, and what it is about: the settings of a backend, for those whose
// declarations depend on them.
type reported struct {
	name, typ, settings string
	known               []string // cases that fail, as the page about the backend says
}

// withPackages are the settings of packages where they decide on a declaration.
const withPackages = `"packages": {"allow": {"python": ["six"], "javascript": ["ms"]}, "registry": "https://nobody.example"}`

var reports = []reported{
	{name: "pyodide", typ: "pyodide"},
	{name: "bubblewrap", typ: "bubblewrap", settings: `{"ports": true, "languages": ["python", "javascript"], "templates": {"small": {"limits": {"memory": "128MiB"}}}}`},
	{name: "docker", typ: "docker", settings: `{"ports": true, "languages": ["python", "javascript"], "templates": {"small": {"image": "example.org/small:1"}}, ` + withPackages + `}`},
	{name: "kubernetes", typ: "kubernetes", settings: `{"namespace": "sandboxes", "server": "https://nobody.example", "token": {"env": "NOBODY"}, "ports": true, "allow_cluster_network": true, "languages": ["python", "javascript"], "templates": {"small": {"image": "example.org/small:1"}}, ` + withPackages + `}`},
	{name: "flymachines", typ: "flymachines", settings: `{"ports": true, "app": "sandboxes", "token": {"env": "FLY_API_TOKEN"}, "languages": ["python", "javascript"], "templates": {"small": {"image": "example.org/small:1"}}, ` + withPackages + `}`},
	{name: "modal", typ: "modal", settings: `{"ports": true, "runtime": "vm", "app": "sandboxes", "token_id": {"env": "MODAL_TEST_ID"}, "token_secret": {"env": "MODAL_TEST_SECRET"}, "languages": ["python", "javascript"], "templates": {"small": {"image": "example.org/small:1"}}, ` + withPackages + `}`},
	{name: "e2b", typ: "e2b", settings: `{"ports": true, "languages": ["python", "javascript"], "networks": ["none", "full"], ` + withPackages + `}`},
	{name: "e2b-code-interpreter", typ: "e2b", settings: `{"kernel": "code-interpreter", "networks": ["none", "full"]}`,
		known: []string{"python/output/binary", "python/output/half-character", "python/values/json"}}, // docs/guides/e2b.md: output is text
}

// Every backend of this module has a report, which says that it conforms, and is about the suite
// and the declarations of today.
func TestReportsAreFresh(t *testing.T) {
	for _, typ := range all.Registry().Types() {
		if !slices.ContainsFunc(reports, func(r reported) bool { return r.name == typ && len(r.known) == 0 }) {
			t.Errorf("%s has no report", typ)
		}
	}
	for _, about := range reports {
		t.Run(about.name, func(t *testing.T) {
			f, err := os.Open("docs/reports/" + about.name + ".json")
			if err != nil {
				t.Fatalf("%v: run make conformance", err)
			}
			defer f.Close()
			r, err := conformance.ParseReport(f)
			if err != nil {
				t.Fatalf("%s: %v", f.Name(), err)
			}
			var known []string
			for _, l := range r.Cases {
				switch l.Outcome {
				case conformance.Known:
					known = append(known, l.ID)
				case conformance.Passed, conformance.Refused:
				default:
					if !l.NotApplicable {
						t.Errorf("%s: %s: %s", f.Name(), l.ID, l.Outcome)
					}
				}
			}
			if !slices.Equal(known, about.known) || r.Conformant != (len(known) == 0) {
				t.Errorf("%s: %v; want the known failures %q, got %q", f.Name(), r.Totals, about.known, known)
			}
			b := backends.Backend{Type: about.typ}
			if about.settings != "" {
				if err := json.Unmarshal([]byte(about.settings), &b.Settings); err != nil {
					t.Fatal(err)
				}
			}
			cfg := backends.Config{Backends: map[string]backends.Backend{about.name: b}}
			box, err := backends.Open(t.Context(), driver.Env{Owner: "policy"}, all.Registry(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer box.Close()
			var languages []executor.Language
			for _, l := range box.Info().Capabilities.Languages {
				languages = append(languages, l.Language)
			}
			for _, d := range r.Stale(conformance.Cases(languages...), box.Info()) {
				t.Errorf("%s: %s; run make conformance", f.Name(), d)
			}
		})
	}
}
