package cases

import (
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// packageCases are about packages. Which one a backend can install is said by the program
// "package-name".
func packageCases() []Case {
	packages := executor.FeaturePackages
	of := func(t *T, names ...string) executor.Packages {
		return executor.Packages{Language: t.Language(), Names: names}
	}
	name := func(t *T) string { return strings.TrimSpace(t.Source(t.Language(), "package-name")) }
	none := func(t *T) {
		t.Refused("install", errorOf(t.Shared().Install(t.Context(), of(t, "conformance-no-such-package"), nil)), packages)
	}
	return []Case{
		{
			ID: "packages/install", Feature: packages, Programs: []string{"package-name", "package-import", "remember", "recall"}, Bound: 5 * time.Minute,
			Doc: "Install makes a package importable for later runs, also in a sandbox without network, and leaves the state alone.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.remembers(s)
				t.says(s, t.Program("package-import"), "absent")
				var kinds []executor.EventKind
				res, err := s.Install(t.Context(), of(t, name(t)), func(ev executor.Event) error {
					if ev.Seq != len(kinds) {
						t.Errorf("event %d has Seq %d", len(kinds), ev.Seq)
					}
					kinds = append(kinds, ev.Kind)
					return nil
				})
				t.must(err, "install")
				t.ended(res, executor.StatusOK, "")
				if len(kinds) == 0 || kinds[0] != executor.EventStarted {
					t.Errorf("got the events %v, want started first", kinds)
				}
				t.says(s, t.Program("package-import"), "present")
				if !res.StateLost && t.Has(executor.FeatureState) {
					t.recalls(s)
				}
				if t.Has(executor.FeatureState) {
					t.noError(s.Reset(t.Context(), executor.Interpreter{}), "reset")
					t.says(s, t.Program("package-import"), "present")
				}
				if res, err := s.Install(t.Context(), of(t, name(t)), nil); err != nil || res.Status != executor.StatusOK {
					t.Errorf("installing it again: got %v, %v", res, err)
				}
			}),
			Negative: none,
		},
		{
			ID: "packages/during-run", Feature: packages, Programs: []string{"package-name", "spin"}, Bound: 5 * time.Minute,
			Doc: "Without parallel runs Install and Run exclude each other with ErrBusy; with them Install works during a run.",
			Positive: fresh(func(t *T, s executor.Session) {
				run := t.spins(s)
				res, err := s.Install(t.Context(), of(t, name(t)), nil)
				if t.Has(executor.FeatureParallelRuns) {
					if err != nil || res.Status != executor.StatusOK {
						t.Errorf("install during a run: got %v, %v", res, err)
					}
				} else {
					t.isNo("install during a run", err, executor.ErrBusy)
				}
				run.stop()
			}),
			Negative: none,
		},
		{
			ID: "packages/not-there", Feature: packages, Programs: []string{"print"}, Bound: 3 * time.Minute,
			Doc: "That a package does not exist is a failed result, not an error, and the session goes on.",
			Positive: fresh(func(t *T, s executor.Session) {
				res, err := s.Install(t.Context(), of(t, "conformance-no-such-package"), nil)
				t.must(err, "install")
				t.ended(res, executor.StatusFailed, "")
				if res.ExitCode == 0 || len(res.Stdout)+len(res.Stderr) == 0 && res.Exception == nil {
					t.Errorf("got %s, want another exit code than 0 and words about it", describe(res))
				}
				t.says(s, t.Program("print", "text", "next"), "next")
			}),
			Negative: none,
		},
		{
			ID: "packages/spec", Feature: packages, Programs: []string{"package-name", "package-import"}, Bound: 5 * time.Minute,
			Doc: "Packages of a spec are there in the first run; one that cannot be installed is ErrInvalid, and makes no sandbox.",
			Positive: func(t *T) {
				s := t.Session(packed(of(t, name(t))))
				t.says(s, t.Program("package-import"), "present")
				t.noError(s.Close(), "close")
				t.createFails("a package that is not there", packed(of(t, "conformance-no-such-package")), executor.ErrInvalid)
			},
			Negative: func(t *T) {
				t.refusesSpec("packages", packed(of(t, "conformance-no-such-package")), packages)
			},
		},
		{
			ID: "packages/invalid", Feature: packages, Bound: 2 * time.Minute,
			Doc: "Addresses, files and options of an installer are ErrInvalid; names that a shell would take for something else install nothing.",
			Positive: fresh(func(t *T, s executor.Session) {
				for _, names := range [][]string{
					nil, {""}, {"--index-url=http://127.0.0.1:1/"}, {"a\nb"}, {"\xff"},
					{"git+https://example.org/x.git"}, {"git+ssh://git@example.org/x"}, {"https://example.org/x.tgz"}, {"x @ https://example.org/x.whl"},
					{"file:x"}, {"./x.whl"}, {"../../etc/passwd"}, {"/etc/passwd"},
				} {
					t.isNo("install of "+excerpt(strings.Join(names, " ")), errorOf(s.Install(t.Context(), of(t, names...), nil)), executor.ErrInvalid)
				}
				for _, odd := range []string{"x; touch owned", "$(touch owned)"} {
					res, err := s.Install(t.Context(), of(t, odd), nil)
					if err == nil && res.Status == executor.StatusOK {
						t.Errorf("install of %q: got %s", odd, describe(res))
					}
				}
				if t.Has(executor.FeatureFiles) {
					t.missing(s.Files(), "owned")
				}
			}),
			Negative: none,
		},
	}
}
