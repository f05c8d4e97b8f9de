package compare

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Difference is a field of a cell that differs.
type Difference struct {
	Cell  int    `json:"cell,omitempty"` // from 1; 0: of surroundings
	Field string `json:"field"`
	Want  string `json:"want,omitempty"`
	Got   string `json:"got,omitempty"`
}

// telling are the fields in the order of how much they tell.
var telling = []string{"error", "refused", "exception", "signal", "status", "exit code", "stderr", "errors", "stdout", "values", "artifacts", "state"}

var (
	quoted  = regexp.MustCompile(`'[^']*'|"[^"]*"|\b0x[0-9a-f]+\b`)
	numbers = regexp.MustCompile(`\d+`)
)

// Signature is what differences of the same cause have in common: the Class with the text of that
// field, without names and numbers. The text comes from the sandbox.
func Signature(found []Difference) string {
	class, d := classify(found)
	if slices.Contains([]string{"stdout", "values", "artifacts"}, d.Field) {
		return class
	}
	text := cmp.Or(d.Got, d.Want)
	if d.Field == "stderr" || d.Field == "errors" { // the last line is the exception
		text = text[strings.LastIndexByte(strings.TrimRight(text, "\n"), '\n')+1:]
	}
	text, _, _ = strings.Cut(numbers.ReplaceAllString(quoted.ReplaceAllString(text, "'…'"), "N"), "\n")
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "…"
	}
	return class + ": " + text
}

// Class is the most telling field of the first cell that differs, and how it differs. It has no
// text from the sandbox. found is not empty.
func Class(found []Difference) string {
	class, _ := classify(found)
	return class
}

func classify(found []Difference) (string, Difference) {
	rank := func(d Difference) int { return slices.Index(telling, d.Field) }
	d := slices.MinFunc(found, func(a, b Difference) int { return cmp.Or(a.Cell-b.Cell, rank(a)-rank(b)) })
	how := "differs"
	switch {
	case d.Got == "":
		how = "is missing"
	case d.Want == "":
		how = "was not expected"
	case (d.Field == "stdout" || d.Field == "values" || d.Field == "artifacts") && strings.HasPrefix(d.Want, d.Got):
		how = "ends early"
	}
	return d.Field + " " + how, d
}

// Differences returns where two observations differ, in the order of cells and names.
func Differences(want, got []Fields) (found []Difference) {
	for i := range max(len(want), len(got)) {
		var a, b Fields
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		for name := range both(a, b) {
			twice := name == "errors" && (a["exception"] != b["exception"] || a["stderr"] != b["stderr"])
			if a[name] != b[name] && !twice && name != LeftRunning {
				found = append(found, Difference{Cell: i + 1, Field: name, Want: a[name], Got: b[name]})
			}
		}
	}
	slices.SortFunc(found, func(a, b Difference) int { return cmp.Or(a.Cell-b.Cell, strings.Compare(a.Field, b.Field)) })
	return found
}

// both has the names of two sets of fields.
func both(a, b Fields) Fields {
	names := Fields{}
	maps.Copy(names, a)
	maps.Copy(names, b)
	return names
}
