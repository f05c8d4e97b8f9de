package e2b_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const guide = "../../docs/guides/e2b-sdks.md"

// The guide has a row for each method of the SDKs, which says in these words what it does over
// Docker and over Pyodide.
const (
	works    = "works"
	differs  = "differs"   // from what it does at E2B, as the row says
	refused  = "refused"   // with the error that the row quotes
	local    = "local"     // it asks no server
	notTried = "not tried" // no test calls it
	nothing  = "–"         // to call it on
)

// methodRow is a row of the guide's tables of methods.
type methodRow struct{ docker, pyodide, text string }

var methodCell = regexp.MustCompile("^(`[^`]+`(, )?)+$")

// methodRows returns the rows of the guide by method.
func methodRows(t *testing.T) map[string]methodRow {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## Every method of the SDKs\n")
	part, _, _ = strings.Cut(part, "\n### In Python\n")
	rows := map[string]methodRow{}
	for line := range strings.SplitSeq(part, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !methodCell.MatchString(strings.TrimSpace(cells[1])) {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimSpace(cells[1]), ", ") {
			name = strings.Trim(name, "`")
			if _, ok := rows[name]; ok {
				t.Errorf("%s has two rows", name)
			}
			rows[name] = methodRow{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3]), strings.Join(cells[4:], "|")}
		}
	}
	return rows
}

// prefixes say how the guide calls the methods of a class: those of the class and those of what it
// makes. Classes without are the SDK's own business.
var prefixes = map[string][2]string{
	"SandboxApi": {"Sandbox.", "sandbox."}, "Sandbox": {"Sandbox.", "sandbox."}, "Filesystem": {1: "sandbox.files."}, "Commands": {1: "sandbox.commands."},
	"Pty": {1: "sandbox.pty."}, "Git": {1: "sandbox.git."}, "CommandHandle": {1: "handle."}, "WatchHandle": {1: "watcher."},
	"Paginator": {1: "pages."}, "SandboxPaginator": {1: "pages."}, "SnapshotPaginator": {1: "pages."}, "SecretPaginator": {1: "pages."},
	"Volume": {"Volume.", "volume."}, "Secret": {"Secret.", "secret."}, "TemplateBase": {"Template.", "template."}, "ReadyCmd": {1: "ready."},
	"LogEntry": {1: "entry."}, "Execution": {1: "run."}, "Result": {1: "result."}, "OutputMessage": {1: "message."},
	"ConnectionConfig": {}, "VolumeConnectionConfig": {},
}

var (
	classes = regexp.MustCompile(`(?ms)^declare (?:abstract )?class (\w+)(?:<[^\n{]*>)? ?[^\n]*\{\n(.*?)^\}`)
	members = regexp.MustCompile(`(?m)^  ((?:(?:static|abstract|async|private|protected|get|set) )*)(\w+)(?:<[^\n(]*>)?\(`)
)

// methodsOf returns the methods that a file of type declarations says that programs may call.
func methodsOf(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range classes.FindAllStringSubmatch(string(text), -1) {
		for _, m := range members.FindAllStringSubmatch(c[2], -1) {
			words := strings.Fields(m[1])
			if m[2] == "constructor" || slices.ContainsFunc(words, func(w string) bool { return w != "static" && w != "abstract" && w != "async" }) {
				continue
			}
			prefix, ok := prefixes[c[1]]
			if !ok {
				t.Errorf("%s has a class %s with a method %s: say in prefixes how the guide calls it", path, c[1], m[2])
			}
			if p := prefix[1]; p != "" && !slices.Contains(words, "static") {
				found[p+m[2]] = true
			} else if p := prefix[0]; p != "" {
				found[p+m[2]] = true
			}
		}
	}
	return found
}

// callers are what the programs call the objects whose methods they use. They call the others as
// the guide does.
var callers = map[string]string{
	"Sandbox": "(Sandbox|Plain)", "sandbox": "(box|other|second|elsewhere)", "handle": "(handle|again|cat|shell|killed)", "watcher": "(watcher|handle)",
}

// called reports whether programs have a call of a method.
func called(t *testing.T, method string, programs ...string) bool {
	t.Helper()
	first, rest, _ := strings.Cut(method, ".")
	if c := callers[first]; c != "" {
		first = c
	}
	call := regexp.MustCompile(`\b` + first + `\.` + regexp.QuoteMeta(rest) + `\(`)
	return slices.ContainsFunc(programs, func(name string) bool {
		text, err := os.ReadFile(filepath.Join("testdata/sdk", name))
		if err != nil {
			t.Fatal(err)
		}
		return call.Match(text)
	})
}

// testMethods tests that the guide has each method of the SDKs that are installed in dir, and that
// a program of TestSDKs calls what it says was tried.
func testMethods(t *testing.T, dir string) {
	rows, have := methodRows(t), map[string]bool{}
	for _, sdk := range []string{"e2b", "e2b-v1", "@e2b/code-interpreter"} {
		maps.Copy(have, methodsOf(t, filepath.Join(dir, "node_modules", sdk, "dist/index.d.ts")))
	}
	if len(have) < 100 {
		t.Errorf("only %d methods were found", len(have))
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s: no row for %s", guide, name)
		}
	}
	refusals := []string{"refusals.mjs"}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := rows[name]
		if !have[name] {
			t.Errorf("%s: the SDKs have no %s", guide, name)
		}
		for _, on := range []struct {
			backend, says string
			programs      []string
		}{
			{"Docker", row.docker, []string{"docker.mjs", "ports.mjs", "code.mjs"}}, {"Pyodide", row.pyodide, []string{"pyodide.mjs", "code.mjs"}},
		} {
			tried := called(t, name, on.programs...)
			switch on.says {
			case works, differs:
				if !tried {
					t.Errorf("%s: %s: %s on %s, but no program calls it there", guide, name, on.says, on.backend)
				}
			case refused:
				if !tried && !called(t, name, refusals...) {
					t.Errorf("%s: %s: refused on %s, but no program tries", guide, name, on.backend)
				}
			case notTried:
				if tried {
					t.Errorf("%s: %s: a program calls it on %s", guide, name, on.backend)
				}
			case local, nothing:
			default:
				t.Errorf("%s: %s: got %q for %s", guide, name, on.says, on.backend)
			}
			if text := strings.TrimSpace(row.text); on.says == differs && text == "" || on.says == refused && !strings.Contains(text, "Error: ") && !strings.Contains(text, "502") {
				t.Errorf("%s: %s: %s on %s, and the row does not say how: %q", guide, name, on.says, on.backend, text)
			}
		}
	}
}

// testRefusals tests that the guide quotes the error of each method that a program was refused, in
// lines with a tab between.
func testRefusals(t *testing.T, output string) {
	t.Helper()
	rows, seen := methodRows(t), 0
	for line := range strings.SplitSeq(output, "\n") {
		name, got, ok := strings.Cut(line, "\t")
		if !ok {
			continue
		}
		seen++
		if row := rows[name]; row.docker != refused || row.pyodide != refused || !strings.Contains(row.text, "`"+got+"`") {
			t.Errorf("%s: %s throws %q, and the row is %+v", guide, name, got, row)
		}
	}
	if seen < 20 {
		t.Errorf("only %d refusals were seen", seen)
	}
}
