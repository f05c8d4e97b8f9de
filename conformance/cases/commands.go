package cases

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// commandCase makes a case about Request.Command, whose negative form is that it is refused.
func commandCase(id, doc string, programs []string, positive func(*T)) Case {
	return Case{
		ID: "commands/" + id, Feature: executor.FeatureCommand, Doc: doc, Programs: programs,
		Positive: positive,
		Negative: func(t *T) {
			t.refuses(t.Shared(), executor.Request{Command: []string{"true"}}, executor.FeatureCommand)
		},
	}
}

// commandCases are about programs that run next to the interpreters.
func commandCases() []Case {
	return []Case{
		commandCase("output", "A command's stdout, stderr and exit code are told, and it has neither exception nor outputs.",
			[]string{"command-echo"}, func(t *T) {
				s := t.Shared()
				res, events := t.events(s, t.command("command-echo", "code", "0"))
				streams(t, res, events, "out\n", "err\n")
				if res.ExitCode != 0 || res.Exception != nil || len(res.Outputs) > 0 {
					t.Errorf("got %s and %d outputs", describe(res), len(res.Outputs))
				}
			}),
		commandCase("exit-codes", "A command that exits with another code than 0 has failed with it; 124 is not a timeout and 137 not a lack of memory.",
			[]string{"command-echo"}, func(t *T) {
				s := t.Shared()
				for _, code := range []int{1, 3, 124, 137, 143, 255} {
					res := t.Run(s, t.command("command-echo", "code", strconv.Itoa(code)))
					t.ended(res, executor.StatusFailed, "")
					if res.ExitCode != code {
						t.Errorf("got exit code %d, want %d", res.ExitCode, code)
					}
				}
			}),
		commandCase("arguments", "Arguments arrive as they are, without a shell, empty ones and those with odd characters too.",
			[]string{"command-args"}, func(t *T) {
				s := t.Shared()
				for _, args := range [][3]string{
					{"two words", "", "*"}, {"$HOME `id` $(id)", "a;b|c&d>e", "it's \"quoted\""}, {"two\nlines", "back\\slash", "渐😀"},
				} {
					res := t.ok(s, t.command("command-args", "a", args[0], "b", args[1], "c", args[2]))
					if got, want := string(res.Stdout), strings.Join(args[:], "\n")+"\n"; got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				}
			}),
		commandCase("stdin", "A command reads Request.Stdin to its end; without one there is nothing to read.",
			[]string{"command-cat"}, func(t *T) {
				s := t.Shared()
				data := pattern(300 << 10)
				req := t.command("command-cat")
				req.Stdin = bytes.NewReader(data)
				if res := t.ok(s, req); !bytes.Equal(res.Stdout, data) {
					t.Errorf("got %s, want the %d bytes of the input", excerpt(string(res.Stdout)), len(data))
				}
				t.says(s, limited(t.command("command-cat"), 10*time.Second), "")
			}),
		commandCase("environment", "A command sees the variables of its session and of its request.",
			[]string{"command-env"}, func(t *T) {
				s := t.Session(func(spec *executor.Spec) { spec.Env = map[string]string{"CONFORMANCE": "of the session"} })
				t.says(s, t.command("command-env"), "of the session")
				for _, v := range oddValues {
					req := t.command("command-env")
					req.Env = map[string]string{"CONFORMANCE": v}
					if res := t.ok(s, req); string(res.Stdout) != v {
						t.Errorf("got %s, want %s", excerpt(string(res.Stdout)), excerpt(v))
					}
				}
				t.says(s, t.command("command-env"), "of the session")
			}),
		commandCase("dir", "A command starts in /workspace or in its Dir.",
			[]string{"command-pwd"}, func(t *T) {
				s := t.Shared()
				t.says(s, t.command("command-pwd"), executor.Workdir)
				req := t.command("command-pwd")
				req.Dir = "/tmp"
				t.says(s, req, "/tmp")
			}),
		commandCase("artifacts", "The files that a command makes are artifacts.",
			[]string{"command-write"}, func(t *T) {
				res := t.ok(t.Session(), wanting(t.command("command-write", "name", "made.txt", "text", "made"), executor.ArtifactRequest{Contents: true}))
				if len(res.Artifacts) != 1 || res.Artifacts[0].Name != "made.txt" || string(res.Artifacts[0].Data) != "made" {
					t.Errorf("got %q, want made.txt with its content", artifactNames(res))
				}
			}),
		commandCase("missing", "A program that is not there is a failed result, not an error.",
			[]string{"command-missing", "command-echo"}, func(t *T) {
				s := t.Shared()
				res := t.Run(s, t.command("command-missing"))
				t.ended(res, executor.StatusFailed, "")
				if res.ExitCode != 127 {
					t.Errorf("got exit code %d, want 127 as shells have it", res.ExitCode)
				}
				t.ok(s, t.command("command-echo", "code", "0"))
			}),
		commandCase("signal", "A command that a signal of its own ends is killed with ReasonSignal and the name of the signal.",
			[]string{"command-signal"}, func(t *T) {
				res := t.Run(t.Shared(), t.command("command-signal"))
				t.ended(res, executor.StatusKilled, executor.ReasonSignal)
				if res.Signal != "SIGSEGV" {
					t.Errorf("got the signal %q, want SIGSEGV", res.Signal)
				}
			}),
		commandCase("timeout", "A command is stopped at its wall time with all of its process group; what it had written is kept.",
			[]string{"command-sleep", "command-background"}, func(t *T) {
				s := t.Session()
				start := time.Now()
				res := t.Run(s, limited(t.command("command-sleep"), time.Second))
				t.prompt("stopping the command", start, 3*time.Second)
				t.ended(res, executor.StatusTimedOut, executor.ReasonWallTime)
				if string(res.Stdout) != "ready\n" {
					t.Errorf("stdout: got %q, want what was written before", res.Stdout)
				}
				res = t.Run(s, limited(t.command("command-background", "name", "ticks", "then", "sleep 3600"), time.Second))
				t.ended(res, executor.StatusTimedOut, executor.ReasonWallTime)
				stillTicks(t, s)
			}),
		commandCase("group", "When a command ends, its process group is gone.",
			[]string{"command-background"}, func(t *T) {
				s := t.Session()
				start := time.Now()
				t.says(s, limited(t.command("command-background", "name", "ticks", "then", "true"), 25*time.Second), "left")
				t.prompt("a command that leaves a child behind", start, 5*time.Second)
				stillTicks(t, s)
			}),
		commandCase("cancel", "A command stops when its context ends, with all of its process group.",
			[]string{"command-background"}, func(t *T) {
				s := t.Session()
				run := t.start(s, limited(t.command("command-background", "name", "ticks", "then", "sleep 3600"), 25*time.Second), nil)
				run.awaitStart()
				run.cancel()
				res, err := run.wait(5 * time.Second)
				t.is("a cancelled command", err, context.Canceled, executor.RanYes)
				if res == nil || res.Status != executor.StatusCanceled {
					t.Errorf("got %s, want a result with the status canceled", run.outcome())
				}
				stillTicks(t, s)
			}),
		commandCase("limit", "The output of a command is bounded as that of code is.",
			[]string{"command-cat"}, func(t *T) {
				req := limited(t.command("command-cat"), 20*time.Second)
				req.Limits.OutputBytes, req.Stdin = 4096, bytes.NewReader(pattern(1<<20))
				t.ended(t.Run(t.Shared(), req), executor.StatusKilled, executor.ReasonOutput)
			}),
		commandCase("beside", "Commands leave the interpreters and their state alone, and share the files.",
			[]string{"remember", "recall", "command-write", "read-file", "command-echo"}, func(t *T) {
				s := t.Session()
				t.remembers(s)
				t.ok(s, t.command("command-write", "name", "made.txt", "text", "made"))
				t.says(s, t.Program("read-file", "name", "made.txt"), "made")
				t.Run(s, t.command("command-echo", "code", "3"))
				if t.Has(executor.FeatureState) {
					t.says(s, t.Program("recall"), kept)
				}
			}),
	}
}

// stillTicks checks that nothing goes on to write the file of the program "command-background".
func stillTicks(t *T, s executor.Session) {
	if t.Has(executor.FeatureFiles) {
		t.still(s, "ticks")
	}
}
