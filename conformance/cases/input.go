package cases

import (
	"bytes"
	"io"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// inputCases are about standard input.
func inputCases() []Case {
	// A form that is refused for want of stdin.
	none := func(t *T) {
		t.refuses(t.Shared(), withStdin(t.Program("ask"), strings.NewReader("Ada\n")), executor.FeatureStdin)
	}
	ask := func(t *T, stdin io.Reader) executor.Request {
		return withStdin(limited(t.Program("ask"), 20*time.Second), stdin)
	}
	return []Case{
		{
			ID: "stdin/line", Feature: executor.FeatureStdin, Programs: []string{"ask"},
			Doc: "Code reads lines of Request.Stdin.",
			Positive: shared(func(t *T, s executor.Session) {
				t.says(s, ask(t, strings.NewReader("Ada\nGrace\n")), "name?\nhello Ada")
				t.says(s, ask(t, strings.NewReader("without an end")), "name?\nhello without an end")
			}),
			Negative: none,
		},
		{
			ID: "stdin/nil", PerLanguage: true, Programs: []string{"ask"},
			Doc: "Without Request.Stdin standard input is empty: code that reads it does not wait.",
			Positive: shared(func(t *T, s executor.Session) {
				start := time.Now()
				res := t.Run(s, ask(t, nil))
				t.prompt("reading nothing", start, 10*time.Second)
				if t.Has(executor.FeatureStdin) || res.Status != executor.StatusFailed {
					t.ended(res, executor.StatusOK, "")
					if got := string(res.Stdout); got != "name?\nhello nobody\n" {
						t.Errorf("stdout: got %q, want that there was no input", got)
					}
				}
			}),
		},
		{
			ID: "stdin/not-kept", Feature: executor.FeatureStdin, Programs: []string{"ask"},
			Doc: "What a run leaves unread is not the input of the next one.",
			Positive: shared(func(t *T, s executor.Session) {
				t.says(s, ask(t, strings.NewReader("Ada\nGrace\nHedy\n")), "name?\nhello Ada")
				t.says(s, ask(t, nil), "name?\nhello nobody")
				t.says(s, ask(t, strings.NewReader("Joan\n")), "name?\nhello Joan")
			}),
			Negative: none,
		},
		{
			ID: "stdin/bytes", Feature: executor.FeatureStdin, Programs: []string{"ask", "echo"},
			Doc: "Standard input may hold any bytes and be large; none of them changes.",
			Positive: func(t *T) {
				data := pattern(1 << 20)
				t.shows(t.Shared(), keeping(withStdin(t.Program("echo"), bytes.NewReader(data)), 4<<20), string(data))
			},
			Negative: none,
		},
		{
			ID: "stdin/unread", Feature: executor.FeatureStdin, Programs: []string{"ask", "print"},
			Doc: "Run does not wait for a Read of Request.Stdin after the code has ended.",
			Positive: shared(func(t *T, s executor.Session) {
				r, w := io.Pipe()
				defer w.Close()
				req := withStdin(t.Program("print", "text", "done"), r)
				start := time.Now()
				t.says(s, req, "done")
				t.prompt("code that does not read", start, 5*time.Second)
				t.says(s, ask(t, strings.NewReader("Ada\n")), "name?\nhello Ada")
			}),
			Negative: none,
		},
		{
			ID: "stdin/answer", Feature: executor.FeatureStdin, Needs: []executor.Feature{executor.FeatureStreaming}, Programs: []string{"ask"},
			Doc: "A program can be answered after it has asked.",
			Positive: func(t *T) {
				r, w := io.Pipe()
				run := t.begin(t.Shared(), ask(t, r))
				t.noError(errorOf(io.WriteString(w, "Ada\n")), "the answer")
				w.Close()
				t.printed(run.ends("the run", 5*time.Second, executor.StatusOK, ""), "name?\nhello Ada\n")
			},
			Negative: none,
		},
		{
			ID: "stdin/timeout", Feature: executor.FeatureStdin, Programs: []string{"ask", "print"},
			Doc: "Code that waits for input that does not come is stopped at its wall time.",
			Positive: shared(func(t *T, s executor.Session) {
				r, w := io.Pipe()
				defer w.Close()
				t.timesOutWithin(3*time.Second, s, limited(ask(t, r), time.Second))
				t.says(s, t.Program("print", "text", "next"), "next")
			}),
			Negative: none,
		},
	}
}

// languageCases are about what code may expect of its language.
func languageCases() []Case {
	// A language that is JavaScript and can start programs has all of Node.
	node := []executor.Feature{executor.FeatureSubprocess, executor.FeatureFiles}
	return []Case{
		{
			ID: "language/main", Only: executor.Python, PerLanguage: true, Programs: []string{"main"},
			Doc:      `Code is the module __main__, so that "if __name__ == '__main__'" holds.`,
			Positive: saying("main 42", "main"),
		},
		{
			ID: "language/processes", Feature: executor.FeatureSubprocess, Only: executor.Python,
			Needs: []executor.Feature{executor.FeatureCellNames, executor.FeatureState}, Programs: []string{"spawn-define", "spawn-use"},
			Doc: "Processes of multiprocessing that are not forked find functions and values of the conversation, and without processes that is an exception.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.says(s, t.Program("spawn-define"), "")
				t.says(s, t.Program("spawn-use"), "spawn [109]\nforkserver [109]")
			}),
			Negative: shared(func(t *T, s executor.Session) {
				t.Run(s, t.Program("spawn-define"))
				if res := t.Run(s, limited(t.Program("spawn-use"), 20*time.Second)); res.Status != executor.StatusFailed {
					t.Errorf("got %s, want that it fails at once", describe(res))
				}
			}),
		},
		{
			ID: "language/return", Only: executor.JavaScript, PerLanguage: true, Programs: []string{"return"},
			Doc: "Code may return at its top level, which ends it as it ends a script, and keeps what it has declared.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.says(s, t.Program("return", "text", "returned"), "before\nfinally")
				if t.Has(executor.FeatureState) {
					t.says(s, t.Program("return", "text", ""), "before\nafter")
				}
			}),
		},
		{
			ID: "language/hashbang", Feature: executor.FeatureTopLevelAwait, Only: executor.JavaScript, Programs: []string{"hashbang"},
			Doc:      "Code may begin with the line that names its interpreter.",
			Positive: saying("run", "hashbang", "text", "run"),
			Negative: func(t *T) { t.Run(t.Shared(), t.Program("hashbang", "text", "run")) },
		},
		{
			ID: "language/script", Only: executor.JavaScript, PerLanguage: true, Needs: node, Programs: []string{"script"},
			Doc: "In Node code is the main module, with a name, a directory, arguments and exports.",
			Positive: emptied(func(t *T, s executor.Session) {
				t.says(s, t.Program("script"), "object true true true\ntrue 2 true")
			}),
		},
		{
			ID: "language/esm", Only: executor.JavaScript, PerLanguage: true, Needs: node, Programs: []string{"esm"},
			Doc:      "In Node code may be written as an ES module that is run: what it exports is its own.",
			Positive: func(t *T) { t.says(t.Shared(), t.Program("esm", "text", "module"), "module") },
		},
		{
			ID: "language/handlers", Only: executor.JavaScript, PerLanguage: true, Needs: append(node, executor.FeatureLinger), Programs: []string{"handlers", "raise"},
			Doc: "In Node a run that handles uncaughtException has errors handled, as a script has; the next run has not.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.says(s, t.Program("handlers"), "uncaughtException now\nuncaughtException later\ngoes on")
				if res := t.Run(s, t.Program("raise", "message", "next")); failed(t, res).Message != "next" {
					t.Errorf("got %s, want the exception of the next run", describe(res))
				}
			}),
		},
		{
			ID: "await/top-level", Feature: executor.FeatureTopLevelAwait, Programs: []string{"await"},
			Doc:      "Code can await outside of functions.",
			Positive: saying("awaited", "await"),
			Negative: func(t *T) {
				if res := t.Run(t.Shared(), t.Program("await")); res.Status == executor.StatusOK {
					t.Errorf("got %s, although await is not declared", describe(res))
				}
			},
		},
		{
			ID: "code/verbatim", PerLanguage: true, Programs: []string{"verbatim"},
			Doc: "Code arrives as it is, whatever quotes, braces, dollars, backslashes and characters it has.",
			Positive: func(t *T) {
				t.says(t.Shared(), t.Program("verbatim"),
					"quotes \" ' ` braces { } [ ] ( ) dollar $HOME ${HOME} $(id) `id` percent % %s %%d\n"+
						"slash / \\ \\n three ''' \"\"\" end tag </script> &amp; 渐 é 😀")
			},
		},
		{
			ID: "code/line-ends", PerLanguage: true, Programs: []string{"raise"},
			Doc: "Code with the line ends of Windows runs, and its lines are counted as usual.",
			Positive: func(t *T) {
				req := t.Program("raise", "message", "boom")
				req.Code = strings.ReplaceAll(req.Code, "\n", "\r\n")
				equal(t, "line", t.raises(t.Shared(), req).Line, 3)
			},
		},
		{
			ID: "code/large", PerLanguage: true, Programs: []string{"print"},
			Doc: "Two mebibytes of code run.",
			Positive: func(t *T) {
				long := strings.Repeat("渐x", 1<<19)
				t.says(t.Shared(), keeping(t.Program("print", "text", long), 4<<20), long)
			},
		},
		{
			ID: "subprocess/start", Feature: executor.FeatureSubprocess, Programs: []string{"subprocess"},
			Doc:      "Code can start programs and read their output.",
			Positive: saying("subprocess ok", "subprocess"),
			Negative: lacks("subprocess"),
		},
		{
			ID: "threads/start", Feature: executor.FeatureThreads, Programs: []string{"threads"},
			Doc:      "Code can start threads.",
			Positive: saying("threads ok", "threads"),
			Negative: lacks("threads"),
		},
	}
}

// lacks checks that a program which tries what is not declared cannot do it.
func lacks(program string) func(*T) {
	return func(t *T) {
		if res := t.Run(t.Shared(), t.Program(program)); strings.Contains(string(res.Stdout), "ok") {
			t.Errorf("stdout: got %q, although %s is not declared", res.Stdout, program)
		}
	}
}

// pattern returns size bytes among which every byte value is, and no short period.
func pattern(size int) []byte {
	b := make([]byte, size)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x >> 11)
	}
	return b
}
