package execbroker_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// reported are the settings that reports are about, of the types whose declarations depend on settings.
var reported = map[string]string{
	"flymachines": `{"app": "sandboxes", "token": {"env": "FLY_API_TOKEN"}, "languages": ["python", "javascript"], "templates": {"small": {"image": "example.org/small:1"}}}`,
	"e2b":         `{"languages": ["python", "javascript"], "networks": ["none", "full"]}`,
	"docker":      `{"languages": ["python", "javascript"], "templates": {"small": {"image": "example.org/small:1"}}}`,
}

// Every backend of this module has a report, which says that it conforms, and is about the suite and the declarations of today.
func TestReportsAreFresh(t *testing.T) {
	for _, typ := range all.Registry().Types() {
		t.Run(typ, func(t *testing.T) {
			f, err := os.Open("docs/reports/" + typ + ".json")
			if err != nil {
				t.Fatalf("%v: run make conformance", err)
			}
			defer f.Close()
			r, err := conformance.ParseReport(f)
			if err != nil {
				t.Fatalf("%s: %v", f.Name(), err)
			}
			if !r.Conformant {
				t.Errorf("%s: not conformant: %v", f.Name(), r.Totals)
			}
			b := backends.Backend{Type: typ}
			if text := reported[typ]; text != "" {
				if err := json.Unmarshal([]byte(text), &b.Settings); err != nil {
					t.Fatal(err)
				}
			}
			cfg := backends.Config{Backends: map[string]backends.Backend{typ: b}}
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
