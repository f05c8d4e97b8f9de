package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Change is a difference that a program notices when it moves from one backend to another.
type Change struct {
	What string `json:"what"` // a case ID, or "capabilities.max_run.wall_time", ...
	From string `json:"from"`
	To   string `json:"to"`
	Doc  string `json:"doc"`
}

// Diff returns the changes from a to b. It fails if their suites differ.
//
// A case that only follows a difference in the declarations is not repeated: where a feature is
// gone, its cases are refused.
func Diff(a, b *Report) ([]Change, error) {
	if a.Suite != b.Suite {
		return nil, fmt.Errorf("conformance: the reports are of different suites, %s and %s: make one of them again", a.Suite, b.Suite)
	}
	changes := diffCapabilities(a.Info.Capabilities, b.Info.Capabilities)
	if a.Mode != b.Mode {
		changes = append(changes, Change{"mode", string(a.Mode), string(b.Mode), "What stood behind the adapter: only a live report says something about a service."})
	}
	other := map[string]Line{}
	for _, l := range b.Cases {
		other[l.ID] = l
	}
	for _, l := range a.Cases {
		m, ok := other[l.ID]
		switch delete(other, l.ID); {
		case !ok:
			// Its language is missing in b, which is a change of its own.
		case l.Outcome == m.Outcome && l.NotApplicable == m.NotApplicable:
		case l.green() && m.green():
			// What differs is what is declared, or what a second feature is needed for.
		default:
			changes = append(changes, Change{l.ID, l.verdict(), m.verdict(), l.Doc})
		}
	}
	return changes, nil
}

// verdict is the outcome of l in words for a reader who compares.
func (l Line) verdict() string {
	if l.NotApplicable {
		return "does not apply"
	}
	return string(l.Outcome)
}

// diffCapabilities returns the changes from a to b.
func diffCapabilities(a, b executor.Capabilities) (changes []Change) {
	add := func(what, from, to, doc string) {
		if from != to {
			changes = append(changes, Change{"capabilities." + what, from, to, doc})
		}
	}
	for _, f := range featuresOf(a.Features, a.Varies, b.Features, b.Varies) {
		add("features."+string(f), having(f, a.Features, a.Varies), having(f, b.Features, b.Varies), docOf(f))
	}
	if len(a.Languages) > 0 && len(b.Languages) > 0 {
		add("default_language", string(a.Languages[0].Language), string(b.Languages[0].Language), "The language of a Spec that names none.")
	}
	for _, l := range languagesOf(a, b) {
		ra, oka := a.Runtime(l)
		rb, okb := b.Runtime(l)
		name := "languages." + string(l)
		if oka != okb {
			add(name, runtimeOf(oka, ra), runtimeOf(okb, rb), "A language that code can be written in.")
			continue
		}
		add(name+".version", ra.Version, rb.Version, "The version of the language.")
		add(name+".isolation", string(ra.Isolation), string(rb.Isolation), "The boundary of sessions with the language, where it is weaker than that of the others.")
		for _, f := range featuresOf(ra.Features, ra.Varies, rb.Features, rb.Varies) {
			add(name+".features."+string(f), having(f, ra.Features, ra.Varies), having(f, rb.Features, rb.Varies), docOf(f))
		}
	}
	add("isolation", string(a.Isolation), string(b.Isolation), "The strongest boundary between the code and the host.")
	for _, t := range templatesOf(a, b) {
		add("templates."+t, yesNo(slices.Contains(a.Templates, t)), yesNo(slices.Contains(b.Templates, t)), "A template that a Spec can name.")
	}
	la, lb := a.MaxLimits, b.MaxLimits
	add("max_limits.cpus", bound(la.CPUs), bound(lb.CPUs), "The most Limits.CPUs that a sandbox can have.")
	add("max_limits.memory_bytes", bound(la.MemoryBytes), bound(lb.MemoryBytes), "The most Limits.MemoryBytes that a sandbox can have.")
	add("max_limits.disk_bytes", bound(la.DiskBytes), bound(lb.DiskBytes), "The most Limits.DiskBytes that a sandbox can have.")
	add("max_limits.processes", bound(la.Processes), bound(lb.Processes), "The most Limits.Processes that a sandbox can have.")
	la, lb = a.DefaultLimits, b.DefaultLimits
	add("default_limits.cpus", known(la.CPUs), known(lb.CPUs), "The Limits.CPUs of a sandbox whose Spec sets none.")
	add("default_limits.memory_bytes", known(la.MemoryBytes), known(lb.MemoryBytes), "The Limits.MemoryBytes of a sandbox whose Spec sets none.")
	add("default_limits.disk_bytes", known(la.DiskBytes), known(lb.DiskBytes), "The Limits.DiskBytes of a sandbox whose Spec sets none.")
	add("default_limits.processes", known(la.Processes), known(lb.Processes), "The Limits.Processes of a sandbox whose Spec sets none.")
	add("max_run.wall_time", bound(a.MaxRun.WallTime), bound(b.MaxRun.WallTime), "The longest that one run may take.")
	add("max_run.output_bytes", bound(a.MaxRun.OutputBytes), bound(b.MaxRun.OutputBytes), "The most that one run may write.")
	add("max_life", bound(a.MaxLife), bound(b.MaxLife), "The longest that a sandbox lives, in use or not.")
	return changes
}

// featuresOf returns the features that are in one of the lists, known ones in the order of
// executor.Features.
func featuresOf(lists ...[]executor.Feature) []executor.Feature {
	all := slices.Concat(lists...)
	known := executor.Features()
	rank := func(f executor.Feature) int {
		if i := slices.IndexFunc(known, func(k executor.FeatureInfo) bool { return k.Feature == f }); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortFunc(all, func(f, g executor.Feature) int {
		if d := rank(f) - rank(g); d != 0 {
			return d
		}
		return strings.Compare(string(f), string(g))
	})
	return slices.Compact(all)
}

func languagesOf(cs ...executor.Capabilities) (ls []executor.Language) {
	for _, c := range cs {
		for _, r := range c.Languages {
			if !slices.Contains(ls, r.Language) {
				ls = append(ls, r.Language)
			}
		}
	}
	return ls
}

func templatesOf(a, b executor.Capabilities) []string {
	all := slices.Concat(a.Templates, b.Templates)
	slices.Sort(all)
	return slices.Compact(all)
}

func having(f executor.Feature, declared, varies []executor.Feature) string {
	switch {
	case slices.Contains(declared, f):
		return "yes"
	case slices.Contains(varies, f):
		return "in some sessions"
	}
	return "no"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func runtimeOf(declared bool, r executor.Runtime) string {
	return strings.TrimSpace(yesNo(declared) + " " + r.Version)
}

// bound words the highest value of something; zero is no known bound.
func bound[N int | int64 | float64 | time.Duration](n N) string {
	if n == 0 {
		return "no known bound"
	}
	switch n := any(n).(type) {
	case float64:
		return strconv.FormatFloat(n, 'g', -1, 64)
	case time.Duration:
		return n.String()
	}
	return fmt.Sprint(n)
}

// notKnown is the word for a default that is not declared.
const notKnown = "not known"

// known words a default; zero is not known.
func known[N int | int64 | float64](n N) string {
	if n == 0 {
		return notKnown
	}
	return bound(n)
}

// docOf says what a feature is.
func docOf(f executor.Feature) string {
	if i, ok := f.Info(); ok {
		return string(i.Class) + ": " + i.Doc
	}
	return "A feature of the adapter's own."
}
