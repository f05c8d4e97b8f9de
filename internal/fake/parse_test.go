package fake

import (
	"regexp"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// FuzzParse checks that any program is parsed, or refused with a line number that exists.
func FuzzParse(f *testing.F) {
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		for _, src := range Programs(l) {
			f.Add(src)
		}
	}
	f.Add("x = = 1")
	f.Add("if a { b } else {")
	f.Add("\"unterminated")
	f.Add("print(\"\\q\")")
	f.Add(strings.Repeat("(", 100_000))
	f.Add(strings.Repeat("if x {", 100_000))
	f.Add(strings.Repeat("-", 100_000) + "1")
	f.Add(strings.Repeat("not ", 100_000))
	f.Fuzz(func(t *testing.T, src string) {
		for _, await := range []bool{true, false} {
			if _, bad := parse(src, await); bad != nil && (bad.line < 1 || bad.line > 1+strings.Count(src, "\n") || bad.what == "") {
				t.Errorf("got the error %q on line %d", bad.what, bad.line)
			}
		}
	})
}

func TestProgramsParse(t *testing.T) {
	hole := regexp.MustCompile(`\{\{[a-z]+\}\}`)
	for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
		for name, src := range Programs(l) {
			if strings.HasSuffix(name, "syntax-error") || name == "package-name" || strings.HasPrefix(name, "command-") {
				continue
			}
			if _, bad := parse(hole.ReplaceAllString(src, "1"), true); bad != nil {
				t.Errorf("%s: %s: %v", l, name, bad)
			}
		}
	}
}
