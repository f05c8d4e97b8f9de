package conformancetest

import (
	_ "embed" // for the golden file
	"encoding/json"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
)

//go:embed testdata/faults.json
var noticedJSON []byte

// controls are the rules that Relevant adds to each fault, by their IDs without the language: that
// a fault breaks them unexpectedly shows, and what it leaves as well.
var controls = []string{"output/stdout", "output/stderr", "state/variables", "exceptions/fields", "timeouts/loop"}

// Relevant returns a function for FaultOptions.Cases that makes the faults of a real backend
// affordable: for each the first most cases by which the backend in memory is found out, in one
// language, the cases that count what is left, and a few that hardly any fault breaks.
func Relevant(language executor.Language, most int) func(fault string) []string {
	var noticed map[string][]string
	if err := json.Unmarshal(noticedJSON, &noticed); err != nil {
		panic(err) // a test has read the file
	}
	exists := map[string]bool{}
	for _, c := range conformance.Cases(language) {
		exists[c.ID] = true
	}
	return func(fault string) []string {
		ids := []string{"leaks/*", "declares"}
		add := func(id string) {
			if exists[id] && !strings.HasPrefix(id, "leaks/") && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		for _, ofLanguage := range []bool{true, false} { // a backend that declares little has more of the former to break
			for _, id := range noticed[fault] {
				rule, ok := strings.CutPrefix(strings.TrimSuffix(id, errored), string(executor.Python)+"/")
				if ok {
					rule = string(language) + "/" + rule
				}
				if ok == ofLanguage && len(ids) < most+2 {
					add(rule)
				}
			}
		}
		for _, rule := range controls {
			add(string(language) + "/" + rule)
		}
		return ids
	}
}
