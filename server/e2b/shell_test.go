package e2b

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// Guards and audits look at the words of a command, so all of the code has to be there.
func TestShellCodeIsInTheCommand(t *testing.T) {
	for name, code := range map[string]string{
		"empty": "", "short": "echo 1", "long": strings.Repeat("ü", maxShellWord) + "x", "exact": strings.Repeat("x", 2*maxShellWord),
	} {
		t.Run(name, func(t *testing.T) {
			req := shellRequest(executor.Request{Code: code + "\x00", Env: map[string]string{"B": "", "A": "", "no name": ""}}, "file")
			words := req.Command[4:]
			if got, want := strings.Join(words[:2], "|"), "file|A B"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if got := strings.Join(words[2:], ""); got != code {
				t.Errorf("got %d bytes of code, want %d", len(got), len(code))
			}
			for _, w := range words {
				if len(w) > maxShellWord {
					t.Errorf("a word has %d bytes, want at most %d", len(w), maxShellWord)
				}
			}
			if err := req.Validate(); err != nil || req.Stdin != nil {
				t.Errorf("got %v, stdin %v", err, req.Stdin)
			}
		})
	}
}
