package cases

import (
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// exceptionCases are about code that fails.
func exceptionCases() []Case {
	return []Case{
		{
			ID: "exceptions/fields", PerLanguage: true, Programs: []string{"raise"},
			Doc: "An uncaught exception is a result with its type, message and line, not an error; what was written before is kept.",
			Positive: func(t *T) {
				res := t.Run(t.Shared(), t.Program("raise", "message", "it's \"boom\" 渐"))
				e := failed(t, res)
				if e.Message != "it's \"boom\" 渐" || e.Line != 3 {
					t.Errorf("got the message %q and line %d, want the message and line 3", e.Message, e.Line)
				}
				if want := valueError(t); want != "" && e.Type != want {
					t.Errorf("got the type %q, want %q", e.Type, want)
				}
				t.printed(res, "before\n")
				if err := res.Err(); err == nil {
					t.Errorf("Result.Err of a failed run is nil")
				}
			},
		},
		{
			ID: "exceptions/traceback", PerLanguage: true, Programs: []string{"raise-deep"},
			Doc: "The traceback has the functions of the user's code that the exception went through, and no frame of anything else.",
			Positive: func(t *T) {
				e := t.raises(t.Shared(), t.Program("raise-deep"))
				t.traced(e, "inner", "outer", "deep")
				equal(t, "line", e.Line, 2)
				usersFrames(t, e)
			},
		},
		{
			ID: "exceptions/in-library", PerLanguage: true, Programs: []string{"raise-in-library"},
			Doc: "An exception that the standard library raises has the line of the user's code that called it, and no frame of the library.",
			Positive: func(t *T) {
				e := t.raises(t.Shared(), t.Program("raise-in-library"))
				equal(t, "line", e.Line, 2)
				usersFrames(t, e)
			},
		},
		{
			ID: "exceptions/chained", Only: executor.Python, PerLanguage: true, Programs: []string{"raise-chained"},
			Doc: "The traceback has the cause of an exception as well.",
			Positive: func(t *T) {
				e := t.raises(t.Shared(), t.Program("raise-chained"))
				if e.Type != "RuntimeError" || e.Message != "outer" || e.Line != 4 {
					t.Errorf("got %s: %s on line %d, want RuntimeError: outer on line 4", e.Type, e.Message, e.Line)
				}
				t.traced(e, "KeyError", "inner", "RuntimeError: outer")
				usersFrames(t, e)
			},
		},
		{
			ID: "exceptions/users-own", PerLanguage: true, Programs: []string{"raise-custom"},
			Doc: "An exception of a class that the code defines has that type, and its message may have several lines.",
			Positive: func(t *T) {
				e := t.raises(t.Shared(), t.Program("raise-custom", "message", "one\ntwo"))
				if e.Type != "OddError" || e.Message != "one\ntwo" {
					t.Errorf("got %s: %q, want OddError with two lines", e.Type, e.Message)
				}
			},
		},
		{
			ID: "exceptions/escape-sequences", PerLanguage: true, Programs: []string{"raise-custom"},
			Doc: "The traceback is plain text without escape sequences, whatever is in the message.",
			Positive: func(t *T) {
				e := t.raises(t.Shared(), t.Program("raise-custom", "message", "\x1b[31mred\x1b[0m"))
				if strings.Contains(e.Traceback, "\x1b") || !strings.Contains(e.Traceback, "red") {
					t.Errorf("got the traceback %s, want red without escape sequences", excerpt(e.Traceback))
				}
			},
		},
		{
			ID: "exceptions/syntax", PerLanguage: true, Programs: []string{"syntax-error"},
			Doc: "Code with a syntax error fails with its line, and no part of it runs.",
			Positive: func(t *T) {
				res := t.Run(t.Shared(), t.Program("syntax-error"))
				if e := failed(t, res); e.Type != "SyntaxError" || e.Line != 2 {
					t.Errorf("got %s on line %d, want SyntaxError on line 2", e.Type, e.Line)
				}
				t.printed(res, "")
			},
		},
		{
			ID: "exceptions/recursion", PerLanguage: true, Programs: []string{"recurse", "remember", "recall"},
			Doc: "Endless recursion is an ordinary exception, after which the session goes on.",
			Positive: remembering(func(t *T, s executor.Session) {
				res := t.Run(s, t.Program("recurse"))
				want := map[executor.Language]string{executor.Python: "RecursionError", executor.JavaScript: "RangeError"}[t.Language()]
				if e := failed(t, res); want != "" && e.Type != want {
					t.Errorf("got the type %q, want %q", e.Type, want)
				}
				t.aftermath(s, res)
			}),
		},
		{
			ID: "exceptions/huge", PerLanguage: true, Programs: []string{"raise-big", "print"},
			Doc: "An exception with a huge message is a result of a bounded size.",
			Positive: fresh(func(t *T, s executor.Session) {
				res := t.Run(s, t.Program("raise-big", "count", executor.DefaultOutputBytes+1<<20))
				if res.Status == executor.StatusOK {
					t.Fatalf("got %s, want failed", describe(res))
				}
				if e := res.Exception; e != nil && len(e.Message)+len(e.Traceback) > executor.DefaultOutputBytes {
					t.Errorf("got an exception of %d bytes, want at most what a run may write", len(e.Message)+len(e.Traceback))
				}
				t.says(s, t.Program("print", "text", "next"), "next")
			}),
		},
		{
			ID: "cell-names/traceback", Feature: executor.FeatureCellNames, Programs: []string{"print", "raise-deep"},
			Doc: "Tracebacks name the cell that the code was in: <cell 1>, <cell 2>.",
			Positive: fresh(func(t *T, s executor.Session) {
				for _, want := range []string{"<cell 1>", "<cell 2>"} {
					res := t.Run(s, t.Program("raise-deep"))
					if e := failed(t, res); !strings.Contains(e.Traceback, want) {
						t.Errorf("the traceback lacks %s: %s", want, excerpt(e.Traceback))
					}
					if !t.Has(executor.FeatureState) {
						return // the numbers of cells are those of an interpreter
					}
				}
			}),
		},
	}
}

// exitCases are about exit codes and the end of interpreters.
func exitCases() []Case {
	exits := func(id string, code int, doc string) Case {
		return Case{
			ID: "exit/" + id, Feature: executor.FeatureExitCode, Doc: doc, Programs: []string{"exit", "remember", "recall"},
			Positive: func(t *T) { exitsWith(t, code) },
			Negative: func(t *T) { cannotExit(t, code) },
		}
	}
	return []Case{
		exits("zero", 0, "Code that exits with 0 has not failed, and what comes after the exit does not run."),
		exits("three", 3, "Code that exits with another code has failed with that code, and without an exception."),
		exits("124", 124, "The user's exit code 124 is not a timeout."),
		exits("137", 137, "The user's exit code 137 is not a lack of memory."),
		{
			ID: "exit/text", Feature: executor.FeatureExitCode, Only: executor.Python, Programs: []string{"exit-text"},
			Doc: "Sys.exit with a text writes it to stderr and exits with 1.",
			Positive: func(t *T) {
				res := t.ends(t.Shared(), t.Program("exit-text"), executor.StatusFailed, "")
				if res.ExitCode != 1 || string(res.Stderr) != "farewell\n" {
					t.Errorf("got %s, want exit code 1 and the text on stderr", describe(res))
				}
			},
			Negative: func(t *T) {
				if res := t.Run(t.Shared(), t.Program("exit-text")); res.Status == executor.StatusOK || res.ExitCode == 0 {
					t.Errorf("got %s, want that it did not end well", describe(res))
				}
			},
		},
		{
			ID: "exit/hook", PerLanguage: true, Only: executor.Python, Needs: []executor.Feature{executor.FeatureCellNames}, Programs: []string{"hook"},
			Doc: "A sys.excepthook that code sets is called for an exception that nothing catches, which ends the run as ever.",
			Positive: func(t *T) {
				res := t.Run(t.Session(), t.Program("hook"))
				if e := failed(t, res); e.Type != "ValueError" || string(res.Stdout) != "hook ValueError boom\n" || len(res.Stderr) > 0 {
					t.Errorf("got %s, want the exception, and what the hook prints", describe(res))
				}
			},
		},
		{
			ID: "exit/hard", PerLanguage: true, Only: executor.Python,
			Needs:    []executor.Feature{executor.FeatureExitCode, executor.FeatureCellNames, executor.FeatureFiles, executor.FeatureState, executor.FeatureArtifacts},
			Programs: []string{"hard-exit", "remember", "recall"},
			Doc:      "Code that ends its process by itself has the exit code that it says, loses its state and keeps its files.",
			Positive: remembering(func(t *T, s executor.Session) {
				req := t.Program("hard-exit", "name", "hard.txt", "code", 4)
				req.Artifacts = &executor.ArtifactRequest{}
				res := t.ends(s, req, executor.StatusFailed, "")
				if res.ExitCode != 4 || string(res.Stdout) != "before\n" || len(res.Stderr) > 0 || !res.StateLost || res.FilesLost {
					t.Errorf("got %s, want exit code 4, what was printed, and no state", describe(res))
				}
				if len(res.Artifacts) != 1 || res.Artifacts[0].Name != "hard.txt" {
					t.Errorf("got the artifacts %v, want the file", res.Artifacts)
				}
				t.holds(s.Files(), "hard.txt", "kept")
				t.aftermath(s, res)
			}),
		},
		{
			ID: "exit/at-exit", PerLanguage: true, Only: executor.Python,
			Needs:    []executor.Feature{executor.FeatureCellNames, executor.FeatureFiles, executor.FeatureState},
			Programs: []string{"at-exit", "print"},
			Doc:      "What code registers by atexit is called at the end of its interpreter, by Reset for example, and what it prints there is nobody's.",
			Positive: emptied(func(t *T, s executor.Session) {
				t.says(s, t.Program("at-exit", "name", "bye.txt"), "registered")
				t.missing(s.Files(), "bye.txt")
				t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				t.holds(s.Files(), "bye.txt", "bye")
				t.says(s, t.Program("print", "text", "next"), "next")
			}),
		},
		{
			ID: "exit/abort", PerLanguage: true, Programs: []string{"die", "remember", "recall"},
			Doc: "Code that kills its interpreter is a result that says so, and the next run works.",
			Positive: remembering(func(t *T, s executor.Session) {
				res := t.Run(s, limited(t.Program("die"), 20*time.Second))
				// The language's runtime may add its last words.
				if !strings.HasPrefix(string(res.Stdout), "before\n") {
					t.Errorf("stdout: got %q, want what was printed before", res.Stdout)
				}
				for line := range strings.Lines(string(res.Stdout) + string(res.Stderr)) {
					if strings.Contains(line, "execbroker") {
						t.Errorf("it names what is not the user's: %s", excerpt(line))
					}
				}
				ok := []executor.Status{executor.StatusKilled, executor.StatusFailed}
				if !slices.Contains(ok, res.Status) {
					t.Errorf("got %s, want killed or failed", describe(res))
				}
				if res.Status == executor.StatusKilled && res.Reason != executor.ReasonSignal && res.Reason != executor.ReasonSandbox {
					t.Errorf("got %s, want the reason signal or sandbox", describe(res))
				}
				if res.Signal != "" && res.Signal != "SIGABRT" {
					t.Errorf("got the signal %q", res.Signal)
				}
				if (res.Signal != "") != (res.Reason == executor.ReasonSignal) {
					t.Errorf("got the signal %q with the reason %q", res.Signal, res.Reason)
				}
				t.aftermath(s, res)
			}),
		},
	}
}

// failed checks that code failed with an exception and the exit code of a script, 1, and returns
// the exception.
func failed(t *T, res *executor.Result) *executor.Exception {
	if res.Exception == nil {
		t.Fatalf("got %s, want an exception", describe(res))
	}
	t.ended(res, executor.StatusFailed, "")
	code := 1
	if !t.Has(executor.FeatureExitCode) {
		code = -1
	}
	equal(t, "exit code", res.ExitCode, code)
	return res.Exception
}

// valueError returns the type of what the program "raise" raises; empty if the suite does not know.
func valueError(t *T) string {
	return map[executor.Language]string{executor.Python: "ValueError", executor.JavaScript: "RangeError"}[t.Language()]
}

// traced checks that a traceback has all of the words.
func (t *T) traced(e *executor.Exception, words ...string) {
	for _, want := range words {
		if !strings.Contains(e.Traceback, want) {
			t.Errorf("the traceback lacks %q: %s", want, excerpt(e.Traceback))
		}
	}
}

// usersFrames checks that no line of a traceback names a file: the user's code is in cells.
func usersFrames(t *T, e *executor.Exception) {
	for line := range strings.Lines(e.Traceback) {
		frame := strings.TrimSpace(line)
		var foreign []string
		switch {
		case strings.HasPrefix(frame, `File "`):
			foreign = []string{`.py"`, `File "/`, "<frozen"}
		case strings.HasPrefix(frame, "at "):
			foreign = []string{"node:", "file:", "ext:", ".js:", ".mjs:", ".cjs:", ".ts:"}
		}
		if slices.ContainsFunc(foreign, func(part string) bool { return strings.Contains(frame, part) }) {
			t.Errorf("the traceback has a frame that is not the user's: %s", excerpt(frame))
		}
	}
}

// exitsWith checks code that exits with a code, and what it says about its state.
func exitsWith(t *T, code int) {
	s := t.Shared()
	t.remembers(s)
	res := t.Run(s, t.Program("exit", "code", code))
	status := executor.StatusFailed
	if code == 0 {
		status = executor.StatusOK
	}
	t.ended(res, status, "")
	if res.ExitCode != code || res.Exception != nil {
		t.Errorf("got %s, want exit code %d and no exception", describe(res), code)
	}
	t.printed(res, "before\n")
	t.aftermath(s, res)
}

// cannotExit checks that code has no say in its exit code.
func cannotExit(t *T, code int) {
	res := t.Run(t.Shared(), t.Program("exit", "code", code))
	if res.Status == executor.StatusOK && res.ExitCode != 0 || res.Status != executor.StatusOK && res.ExitCode != -1 {
		t.Errorf("got %s, want exit code 0 of code that is ok and else -1, since exit codes are not declared", describe(res))
	}
}
