package cases

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// oddValues are values of environment variables that quoting or encoding goes wrong with.
var oddValues = []string{
	"plain", "", "it's \"quoted\"", "two\nlines\n", "back\\slash \\n", "$HOME ${HOME} $(id) `id`", "a=b=c", " blanks ", "渐😀", "'; import os #",
	strings.Repeat("long ", 2000),
}

// environmentCases are about the variables that code sees.
func environmentCases() []Case {
	none := func(t *T) {
		t.refuses(t.Shared(), withEnv(t.Program("environ"), map[string]string{"CONFORMANCE": "x"}), executor.FeatureEnv)
	}
	return []Case{
		{
			ID: "env/session", Feature: executor.FeatureEnv, Programs: []string{"getenv"},
			Doc: "Spec.Env is seen by every run.",
			Positive: func(t *T) {
				s := t.Session(inEnv(map[string]string{"CONFORMANCE": "of the session"}))
				getenv(t, s, nil, "CONFORMANCE", "of the session")
				if t.Has(executor.FeatureState) {
					t.noError(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				}
				getenv(t, s, nil, "CONFORMANCE", "of the session")
			},
			Negative: refusing("env", inEnv(map[string]string{"CONFORMANCE": "x"}), executor.FeatureEnv),
		},
		{
			ID: "env/request", Feature: executor.FeatureEnv, Programs: []string{"getenv", "environ"},
			Doc: "Request.Env is added to the session's for that run, wins over it, and is not seen by the next run.",
			Positive: func(t *T) {
				s := t.Session(func(spec *executor.Spec) {
					spec.Env = map[string]string{"CONFORMANCE": "of the session", "BOTH": "of the session"}
				})
				own := map[string]string{"CONFORMANCE_RUN": "of the run", "BOTH": "of the run"}
				getenv(t, s, own, "CONFORMANCE_RUN", "of the run")
				getenv(t, s, own, "BOTH", "of the run")
				getenv(t, s, own, "CONFORMANCE", "of the session")
				getenv(t, s, nil, "BOTH", "of the session")
				getenv(t, s, nil, "CONFORMANCE_RUN", "")
			},
			Negative: none,
		},
		{
			ID: "env/values", Feature: executor.FeatureEnv, Programs: []string{"environ"},
			Doc: "Values may hold anything but NUL, and arrive as they are.",
			Positive: func(t *T) {
				env := map[string]string{}
				for i, v := range oddValues {
					env["CONFORMANCE_"+strconv.Itoa(i)] = v
				}
				req := withEnv(t.Program("environ"), env)
				ofSession := t.Session(inEnv(env))
				for what, res := range map[string]*executor.Result{"request": t.ok(t.Shared(), req), "session": t.ok(ofSession, t.Program("environ"))} {
					seen := variables(t, res)
					for name, want := range env {
						if got, ok := seen[name]; !ok || got != want {
							t.Errorf("of the %s: got %s, %v, want %s", what, excerpt(got), ok, excerpt(want))
						}
					}
				}
			},
			Negative: none,
		},
		{
			ID: "env/lines", Feature: executor.FeatureEnv, Programs: []string{"raise", "environ"},
			Doc: "Passing variables does not move the lines of the code.",
			Positive: func(t *T) {
				req := withEnv(t.Program("raise", "message", "boom"), map[string]string{"CONFORMANCE": "x", "CONFORMANCE_LINES": "a\nb\nc"})
				equal(t, "line", t.raises(t.Shared(), req).Line, 3)
			},
			Negative: none,
		},
		{
			ID: "env/host", PerLanguage: true, Programs: []string{"environ"},
			Doc: "No variable of the host's environment is seen.",
			Positive: func(t *T) {
				const canary = "EXECBROKER_CONFORMANCE_CANARY"
				if err := os.Setenv(canary, "of the host"); err != nil {
					t.Abort("%v", err)
				}
				t.Cleanup(func() { os.Unsetenv(canary) })
				// Of an Executor that was opened later, lest what it starts has an older copy.
				s := t.Created(t.Open(nil).Create(t.Context(), t.Spec()))
				res := t.ok(s, t.Program("environ"))
				if strings.Contains(string(res.Stdout), canary) {
					t.Errorf("a variable of the host is seen")
				}
				for name := range variables(t, res) {
					if strings.HasPrefix(name, "EXECBROKER_") {
						t.Errorf("the variable %s is seen", name)
					}
				}
			},
		},
	}
}

// getenv checks the value of a variable; empty means that it is not set.
func getenv(t *T, s executor.Session, env map[string]string, name, want string) {
	req := withEnv(t.Program("getenv", "name", name), env)
	var got *string
	out := t.stdout(s, req)
	t.must(json.Unmarshal([]byte(out), &got), "the program getenv printed %s", excerpt(out))
	switch {
	case got == nil && want != "":
		t.Errorf("%s is not set, want %q", name, want)
	case got != nil && *got != want:
		t.Errorf("%s: got %q, want %q", name, *got, want)
	}
}

// variables returns what the program "environ" printed.
func variables(t *T, res *executor.Result) map[string]string {
	var all map[string]string
	t.must(json.Unmarshal(res.Stdout, &all), "the program environ printed %s", excerpt(string(res.Stdout)))
	return all
}

// surroundingsCases are about what every run finds.
func surroundingsCases() []Case {
	noDir := func(t *T) {
		req := executor.Request{Language: t.Language(), Dir: "/tmp"}
		t.refuses(t.Shared(), req, executor.FeatureDir)
	}
	return []Case{
		{
			ID: "workdir/start", Feature: executor.FeatureWorkdir, Programs: []string{"cwd"},
			Doc: "Code starts in /workspace.",
			Positive: shared(func(t *T, s executor.Session) {
				for range 2 {
					t.says(s, t.Program("cwd"), executor.Workdir)
				}
			}),
		},
		{
			ID: "workdir/restart", Feature: executor.FeatureWorkdir, Needs: []executor.Feature{executor.FeatureState}, Programs: []string{"cwd", "swallow"},
			Doc: "Code starts in /workspace also after a Reset, and after code that had to be killed.",
			Positive: shared(func(t *T, s executor.Session) {
				t.noError(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				t.says(s, t.Program("cwd"), executor.Workdir)
				t.Run(s, limited(t.Program("swallow", "text", "x"), 300*time.Millisecond))
				t.says(s, t.Program("cwd"), executor.Workdir)
			}),
		},
		{
			ID: "workdir/files", Feature: executor.FeatureWorkdir, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"write-file"},
			Doc: "Files that code names relatively are those that Files finds below /workspace.",
			Positive: shared(func(t *T, s executor.Session) {
				t.ok(s, t.Program("write-file", "name", "here.txt", "text", t.own()))
				t.holds(s.Files(), executor.Workdir+"/here.txt", t.own())
			}),
		},
		{
			ID: "surroundings/time-zone", PerLanguage: true, Programs: []string{"surroundings"},
			Doc: "Local time is UTC.",
			Positive: func(t *T) {
				found := surroundings(t)
				equal(t, "seconds between UTC and local time", found.Offset, 0)
				t.knows("TZ", found.TZ, "UTC")
			},
		},
		{
			ID: "surroundings/locale", PerLanguage: true, Programs: []string{"surroundings"},
			Doc: "LANG is C.UTF-8 and text files are UTF-8.",
			Positive: func(t *T) {
				found := surroundings(t)
				t.knows("LANG", found.Lang, "C.UTF-8")
				if e := found.Encoding; e != nil && !strings.EqualFold(strings.ReplaceAll(*e, "-", ""), "utf8") {
					t.Errorf("the encoding of text files is %q", *e)
				}
			},
		},
		{
			ID: "surroundings/writable", PerLanguage: true, Programs: []string{"surroundings"},
			Doc: "The home and the temporary directory can be written to.",
			Positive: func(t *T) {
				found := surroundings(t)
				t.allows("home", found.Home)
				t.allows("temporary", found.Temp)
			},
		},
		{
			ID: "surroundings/home", Feature: executor.FeatureWorkdir, Needs: []executor.Feature{executor.FeatureCellNames}, Programs: []string{"surroundings"},
			Doc: "HOME is /tmp/home.",
			Positive: func(t *T) {
				if found := surroundings(t); found.HomeDir != nil && *found.HomeDir != executor.Home {
					t.Errorf("got %q", *found.HomeDir)
				}
			},
		},
		{
			ID: "surroundings/user", PerLanguage: true, Only: executor.Python, Needs: []executor.Feature{executor.FeatureCellNames}, Programs: []string{"user"},
			Doc: "The user of the code has a name, and it is the same whoever is asked.",
			Positive: func(t *T) {
				names := strings.Fields(t.stdout(t.Shared(), t.Program("user")))
				if len(names) < 2 || t.Has(executor.FeatureSubprocess) && len(names) != 3 {
					t.Errorf("got %q, want that all know it", names)
				}
				for _, n := range names {
					if n != names[0] {
						t.Errorf("got %q, want one name", names)
					}
				}
			},
		},
		{
			ID: "surroundings/zones", PerLanguage: true, Only: executor.Python, Needs: []executor.Feature{executor.FeatureCellNames}, Programs: []string{"zones"},
			Doc: "Time zones other than the local one are known.",
			Positive: func(t *T) {
				t.says(t.Shared(), t.Program("zones"), "2026-07-01T14:00:00+02:00\n2026-07-01T17:30:00+05:30")
			},
		},
		{
			ID: "surroundings/program", PerLanguage: true, Only: executor.Python,
			Needs: []executor.Feature{executor.FeatureCellNames, executor.FeatureWorkdir}, Programs: []string{"program"},
			Doc:      "The cell is the program: sys.argv[0] has its name, and __file__ is that in the working directory.",
			Positive: func(t *T) { t.says(t.Session(), t.Program("program"), "<cell 1> "+executor.Workdir+"/<cell 1> w") },
		},
		{
			ID: "dir/run", Feature: executor.FeatureDir, Programs: []string{"cwd", "make-files"},
			Doc: "Request.Dir, absolute or below the working directory, is that of its run only.",
			Positive: emptied(func(t *T, s executor.Session) {
				home := t.stdout(s, t.Program("cwd"))
				t.ok(s, t.Program("make-files", "dir", "sub/deep", "count", 0))
				for dir, want := range map[string]string{"sub": home + "/sub", "sub/deep": home + "/sub/deep", home + "/sub": home + "/sub", "/": "/"} {
					t.says(s, inDir(t.Program("cwd"), dir), want)
					t.says(s, t.Program("cwd"), home)
				}
			}),
			Negative: noDir,
		},
		{
			ID: "dir/missing", Feature: executor.FeatureDir, Programs: []string{"write-file", "read-file"},
			Doc: "Code does not run if its Dir is not there: it fails, or Run does with RanNo.",
			Positive: emptied(func(t *T, s executor.Session) {
				res, err := s.Run(t.Context(), inDir(t.Program("write-file", "name", "/tmp/ran.txt", "text", "x"), "none"), nil)
				switch {
				case err != nil:
					t.isNo("a run in a directory that is not there", err, executor.ErrInvalid)
				case res.Status != executor.StatusFailed:
					t.Errorf("got %s, want failed", describe(res))
				}
				t.says(s, t.Program("read-file", "name", "/tmp/ran.txt"), "absent")
			}),
			Negative: noDir,
		},
	}
}

// found is what the program "surroundings" prints. What the language does not know is nil.
type found struct {
	Offset     float64 `json:"offset"`
	TZ         *string `json:"tz"`
	Lang       *string `json:"lang"`
	Encoding   *string `json:"encoding"`
	Home, Temp *bool
	HomeDir    *string `json:"home_dir"`
}

// knows checks a variable that the languages find which can, and Python must.
func (t *T) knows(name string, got *string, want string) {
	if got != nil && *got != want || got == nil && t.Language() == executor.Python {
		t.Errorf("%s is not %s", name, want)
	}
}

// allows checks that a directory can be written to, where the language knows it.
func (t *T) allows(what string, writable *bool) {
	if writable != nil && !*writable {
		t.Errorf("the %s directory cannot be written to", what)
	}
}

func surroundings(t *T) (f found) {
	res := t.ok(t.Shared(), t.Program("surroundings"))
	f.Offset = 1 // lest what is missing looks right
	t.must(json.Unmarshal(res.Stdout, &f), "the program surroundings printed %s", excerpt(string(res.Stdout)))
	return f
}
