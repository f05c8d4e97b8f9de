package guides

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sees waits until the output from an offset on has the lines of a guide.
func (s *shell) sees(ctx context.Context, from int, lines string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // the commands have ended; what they wrote may be on its way
	defer cancel()
	for {
		missing := lack(s.out.from(from), lines)
		if missing == "" {
			return nil
		}
		if s.more(ctx) != nil {
			return fmt.Errorf("nobody sees %q in\n%s", missing, s.out.from(from))
		}
	}
}

// lack returns the first of lines that output does not have in their order, or "". Between them may
// be others, such as those of a server. In a line, "..." stands for anything, and spaces for any
// number of them. A line with nothing else stands for any lines.
func lack(output, lines string) string {
	rest := strings.Split(output, "\n")
	for want := range strings.SplitSeq(lines, "\n") {
		want = strings.TrimSpace(want)
		if want == "" || want == "..." {
			continue
		}
		var pattern strings.Builder
		for i, part := range strings.Split(want, "...") {
			if i > 0 {
				pattern.WriteString(`.*`)
			}
			pattern.WriteString(spaces.ReplaceAllLiteralString(regexp.QuoteMeta(part), `\s+`))
		}
		line := regexp.MustCompile(`^\s*` + pattern.String() + `\s*$`)
		at := 0
		for at < len(rest) && !line.MatchString(rest[at]) {
			at++
		}
		if at == len(rest) {
			return want
		}
		rest = rest[at+1:]
	}
	return ""
}

var spaces = regexp.MustCompile(` +`)

func TestLack(t *testing.T) {
	const output = "NAME  AGE\nbox   3s\na log\nlocal 4s\n"
	for _, c := range []struct{ lines, want string }{
		{"", ""},
		{"NAME AGE\nbox ...\n...\nlocal 4s\n", ""},
		{"local ...\nbox ...\n", "box ..."},
		{"box 3\n", "box 3"},
		{"b.x 3s\n", "b.x 3s"},
	} {
		if got := lack(output, c.lines); got != c.want {
			t.Errorf("%q: got %q, want %q", c.lines, got, c.want)
		}
	}
}
