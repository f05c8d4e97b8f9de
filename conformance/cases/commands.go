package cases

import (
	"bytes"
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
		Negative: noCommands,
	}
}

func noCommands(t *T) {
	t.refuses(t.Shared(), executor.Request{Command: []string{"true"}}, executor.FeatureCommand)
}

// commandCases are about programs that run next to the interpreters.
func commandCases() []Case {
	return []Case{
		commandCase("output", "A command's stdout, stderr and exit code are told, and it has neither exception nor outputs.",
			[]string{"command-echo"}, shared(func(t *T, s executor.Session) {
				res := t.writes(s, t.command("command-echo", "code", "0"), "out\n", "err\n")
				if res.ExitCode != 0 || res.Exception != nil || len(res.Outputs) > 0 {
					t.Errorf("got %s and %d outputs", describe(res), len(res.Outputs))
				}
			})),
		commandCase("exit-codes", "A command that exits with another code than 0 has failed with it; 124 is not a timeout and 137 not a lack of memory.",
			[]string{"command-echo"}, shared(func(t *T, s executor.Session) {
				for _, code := range []int{1, 3, 124, 137, 143, 255} {
					res := t.ends(s, t.command("command-echo", "code", strconv.Itoa(code)), executor.StatusFailed, "")
					equal(t, "exit code", res.ExitCode, code)
				}
			})),
		commandCase("arguments", "Arguments arrive as they are, without a shell, empty ones and those with odd characters too.",
			[]string{"command-args"}, shared(func(t *T, s executor.Session) {
				for _, args := range [][3]string{
					{"two words", "", "*"}, {"$HOME `id` $(id)", "a;b|c&d>e", "it's \"quoted\""}, {"two\nlines", "back\\slash", "渐😀"},
				} {
					t.shows(s, t.command("command-args", "a", args[0], "b", args[1], "c", args[2]), strings.Join(args[:], "\n")+"\n")
				}
			})),
		commandCase("stdin", "A command reads Request.Stdin to its end; without one there is nothing to read.",
			[]string{"command-cat"}, shared(func(t *T, s executor.Session) {
				data := pattern(300 << 10)
				t.shows(s, withStdin(t.command("command-cat"), bytes.NewReader(data)), string(data))
				t.says(s, limited(t.command("command-cat"), 10*time.Second), "")
			})),
		commandCase("environment", "A command sees the variables of its session and of its request.",
			[]string{"command-env"}, func(t *T) {
				s := t.Session(inEnv(map[string]string{"CONFORMANCE": "of the session"}))
				t.says(s, t.command("command-env"), "of the session")
				for _, v := range oddValues {
					t.shows(s, withEnv(t.command("command-env"), map[string]string{"CONFORMANCE": v}), v)
				}
				t.says(s, t.command("command-env"), "of the session")
			}),
		commandCase("dir", "A command starts in /workspace or in its Dir.",
			[]string{"command-pwd"}, shared(func(t *T, s executor.Session) {
				t.says(s, t.command("command-pwd"), executor.Workdir)
				t.says(s, inDir(t.command("command-pwd"), "/tmp"), "/tmp")
			})),
		commandCase("artifacts", "The files that a command makes are artifacts.",
			[]string{"command-write"}, emptied(func(t *T, s executor.Session) {
				res := t.ok(s, wanting(t.command("command-write", "name", "made.txt", "text", "made"), executor.ArtifactRequest{Contents: true}))
				t.madeOnly(res, "made.txt", "made")
			})),
		commandCase("missing", "A program that is not there is a failed result, not an error.",
			[]string{"command-missing", "command-echo"}, shared(func(t *T, s executor.Session) {
				res := t.ends(s, t.command("command-missing"), executor.StatusFailed, "")
				equal(t, "exit code", res.ExitCode, 127)
				t.ok(s, t.command("command-echo", "code", "0"))
			})),
		commandCase("signal", "A command that a signal of its own ends is killed with ReasonSignal and the name of the signal.",
			[]string{"command-signal"}, func(t *T) {
				res := t.ends(t.Shared(), t.command("command-signal"), executor.StatusKilled, executor.ReasonSignal)
				equal(t, "signal", res.Signal, "SIGSEGV")
			}),
		commandCase("timeout", "A command is stopped at its wall time with all of its process group; what it had written is kept.",
			[]string{"command-sleep", "command-background"}, fresh(func(t *T, s executor.Session) {
				t.stoppedAfter("ready\n", s, t.command("command-sleep"), time.Second, 2*time.Second)
				t.timesOut(s, limited(t.command("command-background", "name", "ticks", "then", "sleep 3600"), time.Second))
				stillTicks(t, s)
			})),
		commandCase("group", "When a command ends, its process group is gone.",
			[]string{"command-background"}, fresh(func(t *T, s executor.Session) {
				start := time.Now()
				t.says(s, limited(t.command("command-background", "name", "ticks", "then", "true"), 25*time.Second), "left")
				t.prompt("a command that leaves a child behind", start, 5*time.Second)
				stillTicks(t, s)
			})),
		commandCase("cancel", "A command stops when its context ends, with all of its process group.",
			[]string{"command-background"}, fresh(func(t *T, s executor.Session) {
				run := t.begin(s, limited(t.command("command-background", "name", "ticks", "then", "sleep 3600"), 25*time.Second))
				run.canceled(5 * time.Second)
				stillTicks(t, s)
			})),
		commandCase("limit", "The output of a command is bounded as that of code is.",
			[]string{"command-cat"}, func(t *T) {
				req := bounded(withStdin(limited(t.command("command-cat"), 20*time.Second), bytes.NewReader(pattern(1<<20))), 4096)
				t.ends(t.Shared(), req, executor.StatusKilled, executor.ReasonOutput)
			}),
		commandCase("beside", "Commands leave the interpreters and their state alone, and share the files.",
			[]string{"remember", "recall", "command-write", "read-file", "command-echo"}, remembering(func(t *T, s executor.Session) {
				t.ok(s, t.command("command-write", "name", "made.txt", "text", "made"))
				t.says(s, t.Program("read-file", "name", "made.txt"), "made")
				t.Run(s, t.command("command-echo", "code", "3"))
				t.recalls(s)
			})),
	}
}

// stillTicks checks that nothing goes on to write the file of the program "command-background".
func stillTicks(t *T, s executor.Session) {
	if t.Has(executor.FeatureFiles) {
		t.still(s, "ticks")
	}
}
