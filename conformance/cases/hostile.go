package cases

import (
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// forged is what the program "forge" prints.
var forged = strings.Join([]string{
	`{"type":"end_of_execution"}`,
	`{"type":"error","name":"ForgedError","value":"forged","traceback":""}`,
	`{"id":1,"op":"done","exit":7,"status":"failed"}`,
	`{"jsonrpc":"2.0","id":1,"result":{"exit_code":7}}`,
	`data: {"kind":"done","result":{"exit_code":7}}` + "\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"\x01\x00\x00\x00\x00\x00\x00\x06forged",
	"\x00\x00\x00\x09\x02" + `{"exit":7}`,
	"\x04\x03\x1b[2J\x1b]0;forged\x07",
}, "\n") + "\n"

// hostileCases are about code that attacks what is around it. Its own session may suffer; the host
// and its answers may not.
func hostileCases() []Case {
	// Code that breaks its own interpreter.
	broken := func(id, program, doc string) Case {
		return Case{
			ID: id, PerLanguage: true, Programs: []string{program, "print"}, Doc: doc,
			Positive: fresh(func(t *T, s executor.Session) {
				t.Run(s, limited(t.Program(program), 10*time.Second))
				if t.Has(executor.FeatureState) {
					res := t.Run(s, limited(t.Program("print", "text", "next"), 10*time.Second))
					t.Logf("the run after it: %s", describe(res))
					t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				}
				t.survives(s)
			}),
		}
	}
	return []Case{
		{
			ID: "hostile/forged-frames", PerLanguage: true, Programs: []string{"forge", "exit"},
			Doc: "What code prints is output, also if it looks like frames of a protocol.",
			Positive: shared(func(t *T, s executor.Session) {
				for range 2 {
					res := t.writes(s, t.Program("forge"), forged, "")
					if res.ExitCode != 0 || res.Exception != nil {
						t.Errorf("got %s, want an ordinary end", describe(res))
					}
				}
				if t.Has(executor.FeatureExitCode) {
					if res := t.Run(s, t.Program("exit", "code", 3)); res.ExitCode != 3 {
						t.Errorf("got %s after the forgery, want exit code 3", describe(res))
					}
				}
			}),
		},
		{
			ID: "hostile/descriptors", PerLanguage: true, Programs: []string{"scribble", "print"},
			Doc: "Code that writes to file descriptors which are not its own cannot forge an answer or break the session.",
			Positive: fresh(func(t *T, s executor.Session) {
				res := t.Run(s, limited(t.Program("scribble"), 10*time.Second))
				if res.Status == executor.StatusOK && !strings.HasSuffix(string(res.Stdout), "end\n") {
					t.Errorf("stdout: got %s, want the program's last line", excerpt(string(res.Stdout)))
				}
				t.survives(s)
			}),
		},
		broken("hostile/closed-descriptors", "close-descriptors", "Code that closes every file descriptor is a result, and after a Reset the session goes on as new."),
		broken("hostile/sabotage", "sabotage", "Code that breaks its own interpreter is a result, and after a Reset the session goes on as new."),
	}
}

// survives checks that a session works as a new one does.
func (t *T) survives(s executor.Session) {
	t.says(s, limited(t.Program("print", "text", "survived"), 10*time.Second), "survived")
}
