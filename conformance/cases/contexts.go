package cases

import (
	"fmt"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// contextCases are about several interpreters of one language.
func contextCases() []Case {
	contexts := executor.FeatureContexts
	in := func(name string, req executor.Request) executor.Request {
		req.Context = name
		return req
	}
	none := func(t *T) {
		t.refuses(t.Shared(), in("other", executor.Request{Language: t.Language()}), contexts)
	}
	return []Case{
		{
			ID: "contexts/apart", Feature: contexts, Programs: []string{"remember", "recall"},
			Doc: "Each context has its own variables, count of cells and beginning.",
			Positive: fresh(func(t *T, s executor.Session) {
				for _, name := range []string{"", "a", "b"} {
					res := t.says(s, in(name, t.Program("recall")), "absent")
					if !res.StateFresh || res.Cell > 1 {
						t.Errorf("context %q: StateFresh %v and cell %d of its first run", name, res.StateFresh, res.Cell)
					}
					t.ok(s, in(name, t.Program("remember", "value", "of "+name)))
				}
				for _, name := range []string{"", "a", "b"} {
					res := t.ok(s, in(name, t.Program("recall")))
					want, cell := "of "+name+"\n", 3
					if !t.Has(executor.FeatureState) {
						want, cell = "absent\n", res.Cell
					}
					if string(res.Stdout) != want || res.Cell != cell {
						t.Errorf("context %q: got %q in cell %d, want %q in cell %d", name, res.Stdout, res.Cell, want, cell)
					}
				}
			}),
			Negative: none,
		},
		{
			ID: "contexts/files", Feature: contexts, Needs: []executor.Feature{executor.FeatureFiles}, Programs: []string{"write-file", "read-file"},
			Doc: "Contexts share the files of their session.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.ok(s, in("a", t.Program("write-file", "name", "shared.txt", "text", "shared")))
				t.says(s, in("b", t.Program("read-file", "name", "shared.txt")), "shared")
			}),
			Negative: none,
		},
		{
			ID: "contexts/dir", Feature: contexts, Needs: []executor.Feature{executor.FeatureDir}, Programs: []string{"make-files", "cwd"},
			Doc: "A context starts in the Dir of its first request.",
			Positive: fresh(func(t *T, s executor.Session) {
				home := t.stdout(s, t.Program("cwd"))
				t.ok(s, t.Program("make-files", "dir", "sub", "count", 0))
				t.says(s, inDir(in("a", t.Program("cwd")), "sub"), home+"/sub")
				t.says(s, in("a", t.Program("cwd")), home+"/sub")
				t.says(s, t.Program("cwd"), home)
			}),
			Negative: none,
		},
		{
			ID: "contexts/reset", Feature: contexts, Needs: []executor.Feature{executor.FeatureState}, Programs: []string{"remember", "recall"},
			Doc: "Reset of one context leaves the others; an empty one means all of the language.",
			Positive: fresh(func(t *T, s executor.Session) {
				names := []string{"", "a", "b"}
				for _, name := range names {
					t.ok(s, in(name, t.Program("remember", "value", kept)))
				}
				t.must(s.Reset(t.Context(), executor.Interpreter{Language: t.Language(), Context: "a"}), "reset")
				for name, want := range map[string]string{"": kept, "a": "absent", "b": kept} {
					t.says(s, in(name, t.Program("recall")), want)
				}
				t.must(s.Reset(t.Context(), executor.Interpreter{Language: t.Language()}), "reset")
				for _, name := range names {
					t.says(s, in(name, t.Program("recall")), "absent")
				}
			}),
			Negative: none,
		},
		{
			ID: "contexts/reset-run", Feature: contexts, Needs: []executor.Feature{executor.FeatureState, executor.FeatureParallelRuns},
			Programs: []string{"spin", "remember", "recall"},
			Doc:      "Reset of one context ends its run, and no other.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.remembers(s)
				a := t.start(s, in("a", limited(t.Program("spin", "text", "ready"), 25*time.Second)), nil)
				b := t.start(s, in("b", limited(t.Program("spin", "text", "ready"), 2500*time.Millisecond)), nil)
				a.awaitStart()
				b.awaitStart()
				t.must(s.Reset(t.Context(), executor.Interpreter{Language: t.Language(), Context: "a"}), "reset")
				a.ends("the run that was reset", 3*time.Second, executor.StatusKilled, executor.ReasonReset)
				b.ends("the other run", 6*time.Second, executor.StatusTimedOut, executor.ReasonWallTime)
				t.recalls(s)
			}),
			Negative: none,
		},
		{
			ID: "contexts/names", Feature: contexts, Needs: []executor.Feature{executor.FeatureState}, Programs: []string{"remember", "recall"},
			Doc: "Names of contexts do not collide, and bad ones are ErrInvalid.",
			Positive: fresh(func(t *T, s executor.Session) {
				names := []string{"a", "A", "a.b", "a_b", "a-b", "0", "python", "default", strings.Repeat("n", 64)}
				for _, name := range names {
					t.ok(s, in(name, t.Program("remember", "value", "of "+name)))
				}
				for _, name := range names {
					t.says(s, in(name, t.Program("recall")), "of "+name)
				}
				for _, name := range []string{"../up", "a/b", " ", "é", strings.Repeat("n", 65), "-a", "nul\x00"} {
					t.isNo(fmt.Sprintf("context %q", name), errorOf(s.Run(t.Context(), in(name, t.Program("recall")), nil)), executor.ErrInvalid)
				}
			}),
			Negative: none,
		},
	}
}

// languagesCases are about several languages in one session.
func languagesCases() []Case {
	mixed := executor.FeatureMixedLanguages
	// two returns the languages to mix, in the positive forms.
	two := func(t *T) []executor.Language {
		if n := len(t.Executor().Info().Capabilities.Languages); n < 2 {
			t.Fatalf("mixed languages are declared, and %d languages", n)
		}
		all := t.Languages()
		if len(all) < 2 {
			t.Abort("there are programs for fewer than two of the languages that are declared")
		}
		return all[:2]
	}
	none := func(t *T) {
		langs := []executor.Language{t.Language(), "no-such-language"}
		if all := t.Languages(); len(all) > 1 {
			langs = all[:2]
		}
		t.refusesSpec("two languages", languages(langs...), mixed)
	}
	return []Case{
		{
			ID: "mixed/files", Feature: mixed, Programs: []string{"write-file", "read-file", "remember", "recall"},
			Doc: "Languages of one session share its files, and each keeps its own state.",
			Positive: func(t *T) {
				langs := two(t)
				s := t.Session(languages(langs...))
				for i, l := range langs {
					name := "of-" + string(l)
					t.ok(s, t.ProgramIn(l, "write-file", "name", name, "text", string(l)))
					t.says(s, t.ProgramIn(langs[1-i], "read-file", "name", name), string(l))
					t.ok(s, t.ProgramIn(l, "remember", "value", string(l)))
				}
				for _, l := range langs {
					if want := string(l); t.Executor().Info().Capabilities.HasFor(l, executor.FeatureState) {
						t.says(s, t.ProgramIn(l, "recall"), want)
					}
				}
				if got := s.Info().Capabilities.Languages; len(got) != 2 {
					t.Errorf("the session declares %d languages, want the two that were asked for", len(got))
				}
			},
			Negative: none,
		},
		{
			ID: "mixed/reset", Feature: mixed, Programs: []string{"remember", "recall"},
			Doc: "Reset of one language leaves the other.",
			Positive: func(t *T) {
				langs := two(t)
				s := t.Session(languages(langs...))
				for _, l := range langs {
					if !t.Executor().Info().Capabilities.HasFor(l, executor.FeatureState) {
						t.Logf("%s has no state", l)
						return
					}
					t.ok(s, t.ProgramIn(l, "remember", "value", kept))
				}
				t.must(s.Reset(t.Context(), executor.Interpreter{Language: langs[0]}), "reset")
				t.says(s, t.ProgramIn(langs[0], "recall"), "absent")
				t.says(s, t.ProgramIn(langs[1], "recall"), kept)
			},
			Negative: none,
		},
		{
			ID: "mixed/undeclared", PerLanguage: true,
			Doc: "A session runs its own languages only: another one is refused, also one that the backend has.",
			Positive: shared(func(t *T, s executor.Session) {
				others := []executor.Language{"no-such-language"}
				for _, r := range t.Executor().Info().Capabilities.Languages {
					if r.Language != t.Language() {
						others = append(others, r.Language)
					}
				}
				for _, l := range others {
					t.Refused(fmt.Sprintf("code in %s", l), errorOf(s.Run(t.Context(), executor.Request{Language: l, Code: "1"}, nil)))
				}
				t.Run(s, executor.Request{Language: t.Language()})
			}),
		},
	}
}
