package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// createCases are about what a session is made of, and about what is refused.
func createCases() []Case {
	return []Case{
		{
			ID: "info/pure", Programs: []string{"print"},
			Doc: "Info of an Executor and of a session are the same before and after use, and are there after Close.",
			Positive: func(t *T) {
				x := t.Open(nil)
				s := t.Created(x.Create(t.Context(), t.Spec()))
				info, sinfo := x.Info(), s.Info()
				t.ok(s, t.Program("print", "text", "x"))
				t.noError(s.Close(), "close of the session")
				t.noError(x.Close(), "close")
				if !reflect.DeepEqual(x.Info(), info) {
					t.Errorf("Info of the Executor changed: got %+v, before %+v", x.Info(), info)
				}
				after := s.Info()
				after.State, after.Expires, sinfo.State, sinfo.Expires = "", time.Time{}, "", time.Time{}
				if !reflect.DeepEqual(after, sinfo) {
					t.Errorf("Info of the session changed: got %+v, before %+v", after, sinfo)
				}
				if other := t.Executor().Info(); !reflect.DeepEqual(other, info) {
					t.Errorf("two Executors of one backend have different Info: %+v, %+v", other, info)
				}
			},
		},
		{
			ID: "create/info", PerLanguage: true,
			Doc: "A new session is running, has its handle, labels, time and limits, and declares what the backend does for its language.",
			Positive: func(t *T) {
				begin := time.Now()
				s := t.Session(func(spec *executor.Spec) {
					spec.Labels = map[string]string{"purpose": "info"}
					spec.Attributes, spec.Subject = map[string]string{"plan": "secret-plan"}, "secret-subject"
				})
				i, info := s.Info(), t.Executor().Info()
				equal(t, "state", i.State, executor.SessionRunning)
				h := i.Handle
				if h.Backend != info.Name || h.Type != info.Type || h.Session == "" || h.Fence != 0 {
					t.Errorf("handle: got %+v, want the names of the backend %+v", h, info)
				}
				spec := t.Spec()
				wantRun, wantMax := spec.Bounds()
				if i.Run != wantRun || i.MaxRun != wantMax || h.Run != wantRun || h.MaxRun != wantMax {
					t.Errorf("limits of runs: got %+v and %+v, in the handle %+v and %+v, want %+v and %+v", i.Run, i.MaxRun, h.Run, h.MaxRun, wantRun, wantMax)
				}
				if want := max(spec.IdleTTL, 0); want == 0 && h.IdleTTL != executor.DefaultIdleTTL || want > 0 && h.IdleTTL != want {
					t.Errorf("idle TTL in the handle: got %v", h.IdleTTL)
				}
				equal(t, "the label purpose", i.Labels["purpose"], "info")
				t.noReserved(i.Labels)
				// The clock of the provider may be off, but not by an hour.
				if d := i.Created.Sub(begin); d < -time.Hour || d > time.Hour {
					t.Errorf("created: got %v, want about %v", i.Created, begin)
				}
				want := info.Capabilities.For(t.Language())
				want.Features = slices.DeleteFunc(slices.Clone(want.Features), func(f executor.Feature) bool { return f == executor.FeaturePorts }) // which it has not asked for
				if !sameJSON(i.Capabilities.Languages, want.Languages) || !sameJSON(i.Capabilities.Features, want.Features) {
					t.Errorf("capabilities: got %+v, want those of the backend for the language: %+v", i.Capabilities, want)
				}
				if !i.Capabilities.Isolation.AtLeast(want.Isolation) {
					t.Errorf("isolation: got %q, the backend declares %q", i.Capabilities.Isolation, want.Isolation)
				}
				t.defaultLimits(i.Limits, info.Capabilities)
				var unknown *refusal // what no backend can have
				if executor.As(s, &unknown) {
					t.Errorf("As finds a value of a type of the suite")
				}
				all := fmt.Sprintf("%+v %s", i, h)
				text, err := json.Marshal(i)
				if strings.Contains(all+string(text), "secret-") || err != nil {
					t.Errorf("attributes or subject turn up in the info or the handle: %v", err)
				}
			},
		},
		{
			ID:  "create/default-language",
			Doc: "A spec without languages gets the backend's first.",
			Positive: func(t *T) {
				s := t.Session(languages())
				got, want := s.Info().Capabilities.Languages, t.Executor().Info().Capabilities.Languages[0].Language
				if len(got) != 1 || got[0].Language != want {
					t.Errorf("got the languages %+v, want %s", got, want)
				}
				t.Run(s, executor.Request{Language: want})
			},
		},
		{
			ID: "create/require", PerLanguage: true,
			Doc: "A spec may require every feature that is declared, and the isolation that is.",
			Positive: func(t *T) {
				caps := t.Executor().Info().Capabilities
				t.Session(func(spec *executor.Spec) {
					r, _ := caps.Runtime(t.Language())
					spec.Require = slices.Concat(caps.Features, r.Features)
					spec.MinIsolation = caps.For(t.Language()).Isolation
				})
			},
		},
		{
			ID:  "create/templates",
			Doc: "Every template that is declared can be asked for, and SessionInfo says which it is; others are refused.",
			Positive: func(t *T) {
				declared := t.Executor().Info().Capabilities.Templates
				for _, name := range []string{"conformance-no-such-template", "../template", strings.Join(declared, " ") + " x"} {
					t.refusesSpec(fmt.Sprintf("the template %q", name), template(name))
				}
				for _, name := range declared {
					s := t.Session(template(name))
					equal(t, "template", s.Info().Template, name)
					t.Run(s, executor.Request{Language: t.Language()})
				}
			},
		},
		{
			ID: "create/progress", PerLanguage: true, Programs: []string{"print"},
			Doc: "Progress is told one call at a time, with words, and never after the operation has returned.",
			Positive: func(t *T) {
				var inside, over atomic.Bool
				watch := func() context.Context {
					over.Store(false)
					return executor.WithProgress(t.Context(), func(p executor.Progress) {
						if over.Load() || inside.Swap(true) {
							t.Errorf("progress %q: told after the operation, or twice at a time", p.What)
						}
						if p.What == "" || p.Total < 0 || p.Done < 0 || p.Total > 0 && p.Done > p.Total {
							t.Errorf("got the progress %+v", p)
						}
						inside.Store(false)
					})
				}
				s, err := t.Executor().Create(watch(), t.Spec())
				over.Store(true)
				t.must(err, "create")
				t.noError(errorOf(s.Run(watch(), t.Program("print", "text", "x"), nil)), "run")
				over.Store(true)
				t.ok(s, t.Program("print", "text", "time for progress to come late"))
			},
		},
		{
			ID:  "create/refused",
			Doc: "Create refuses every spec that asks for what the backend lacks, names all of it, and makes no sandbox.",
			Positive: func(t *T) {
				caps := t.Executor().Info().Capabilities
				for _, r := range refusals(caps, t.Language()) {
					if missing := caps.MissingFor(t.Spec(r.edit)); len(missing) > 0 {
						t.refusesSpec(r.what, r.edit)
					} else if r.certain {
						t.Errorf("%s: MissingFor finds nothing missing", r.what)
					}
				}
			},
		},
		{
			ID:  "create/invalid",
			Doc: "Create refuses a spec that no backend could accept with ErrInvalid, and makes no sandbox.",
			Positive: func(t *T) {
				for what, edit := range invalidSpecs {
					t.createFails(what, edit, executor.ErrInvalid)
				}
			},
		},
		{
			ID:  "create/cancelled",
			Doc: "Create with a context that has ended, or ends meanwhile, makes no sandbox that is left.",
			Positive: func(t *T) {
				ctx := t.over()
				t.isNo("create with a context that has ended", errorOf(t.Executor().Create(ctx, t.Spec())), context.Canceled)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				s, err := t.Executor().Create(ctx, t.Spec())
				if err == nil { // faster than a millisecond
					t.noError(s.Close(), "close")
				} else {
					t.isNo("create whose context ends", err, context.DeadlineExceeded)
				}
				t.notRetryable(err)
				t.eventuallyNone("what was half made is removed")
			},
		},
		{
			ID: "create/context", PerLanguage: true, Programs: []string{"print"},
			Doc: "The context of Create governs that call only: the session outlives it.",
			Positive: func(t *T) {
				ctx, cancel := context.WithCancel(t.Context())
				s, err := t.Executor().Create(ctx, t.Spec())
				t.must(err, "create")
				cancel()
				t.says(s, t.Program("print", "text", "still here"), "still here")
			},
		},
	}
}

// inEnv, and the functions below it, edit a Spec for T.Spec and T.Session.
func inEnv(env map[string]string) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Env = env }
}

func idleFor(ttl time.Duration) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.IdleTTL = ttl }
}

func languages(ls ...executor.Language) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Languages = ls }
}

func template(name string) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Template = name }
}

func requiring(f executor.Feature) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Require = []executor.Feature{f} }
}

func packed(ps ...executor.Packages) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Packages = ps }
}

func writing(bytes int64) func(*executor.Spec) {
	return func(spec *executor.Spec) { spec.Run.OutputBytes = bytes }
}

func withoutLimit(spec *executor.Spec) { spec.Run.WallTime = executor.NoLimit }

// sameJSON reports whether a and b are the same in a report, where no element and no list are one.
func sameJSON(a, b any) bool {
	aj, aerr := json.Marshal(a)
	bj, berr := json.Marshal(b)
	return aerr == nil && berr == nil && string(aj) == string(bj)
}

// refusal is a change of a spec that asks for something.
type refusal struct {
	what    string
	edit    func(*executor.Spec)
	certain bool // the backend lacks it; else MissingFor says whether it does
}

// refusals returns specs that a backend with the capabilities c has to refuse, each for a reason of
// its own.
func refusals(c executor.Capabilities, l executor.Language) []refusal {
	limits, run, life := c.MaxLimits, c.MaxRun, c.MaxLife
	all := []refusal{
		{"an unknown template", template("conformance-no-such-template"), true},
		{"an unknown language", languages("no-such-language"), true},
		{"an unknown feature", requiring("x-no-such-feature"), true},
		{"packages of an unknown language", func(s *executor.Spec) {
			s.Languages = []executor.Language{"no-such-language"}
			s.Packages = []executor.Packages{{Language: "no-such-language", Names: []string{"x"}}}
		}, true},
		{"packages", packed(executor.Packages{Language: l, Names: []string{"conformance-no-such-package"}}), false},
		{"aliases", withAliases, false},
		{"ports", withPorts, false},
		{"more processors than there are", func(s *executor.Spec) { s.Limits.CPUs = limits.CPUs + 1 }, limits.CPUs > 0},
		{"more memory than there is", func(s *executor.Spec) { s.Limits.MemoryBytes = limits.MemoryBytes + 1 }, limits.MemoryBytes > 0},
		{"more disk than there is", func(s *executor.Spec) { s.Limits.DiskBytes = limits.DiskBytes + 1 }, limits.DiskBytes > 0},
		{"more processes than there are", func(s *executor.Spec) { s.Limits.Processes = limits.Processes + 1 }, limits.Processes > 0},
		{"a wall time beyond the backend's", func(s *executor.Spec) { s.Run.WallTime = run.WallTime + time.Second }, run.WallTime > 0},
		{"a ceiling beyond the backend's", func(s *executor.Spec) { s.MaxRun.WallTime = run.WallTime + time.Second }, run.WallTime > 0},
		{"no limit of time", withoutLimit, run.WallTime > 0},
		{"more output than the backend's", writing(run.OutputBytes + 1), run.OutputBytes > 0},
		{"a life beyond the backend's", func(s *executor.Spec) { s.MaxLife = life + time.Second }, life > 0},
		{"an idle TTL beyond the backend's", idleFor(life + time.Second), life > 0},
	}
	for _, i := range executor.Features() {
		all = append(all, refusal{"the feature " + string(i.Feature), requiring(i.Feature), false})
	}
	for _, i := range []executor.Isolation{
		executor.IsolationWasm, executor.IsolationWasmOS, executor.IsolationContainer, executor.IsolationGVisor, executor.IsolationMicroVM,
	} {
		all = append(all, refusal{"the isolation " + string(i), func(s *executor.Spec) { s.MinIsolation = i }, false})
	}
	return all
}

// invalidSpecs are specs that no backend could accept.
var invalidSpecs = map[string]func(*executor.Spec){
	"a label with a reserved name": func(s *executor.Spec) { s.Labels = map[string]string{executor.ReservedPrefix + "owner": "x"} },
	"a label with a bad name":      func(s *executor.Spec) { s.Labels = map[string]string{"Upper Case": "x"} },
	"a label with a bad value":     func(s *executor.Spec) { s.Labels = map[string]string{"label": "two\nlines"} },
	"a label with a long value":    func(s *executor.Spec) { s.Labels = map[string]string{"label": strings.Repeat("x", 256)} },
	"a variable with a bad name":   func(s *executor.Spec) { s.Env = map[string]string{"A=B": "x"} },
	"a variable with a bad value":  func(s *executor.Spec) { s.Env = map[string]string{"A": "nul\x00"} },
	"hosts without an allowlist":   func(s *executor.Spec) { s.Network.Hosts = []string{"example.org"} },
	"an unknown network mode":      func(s *executor.Spec) { s.Network = executor.NetworkPolicy{Mode: "some"} },
	"a host with a port": func(s *executor.Spec) {
		s.Network = executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"example.org:443"}}
	},
	"an alias that is relative":     func(s *executor.Spec) { s.Aliases = []string{"mnt/data"} },
	"an alias that is not clean":    func(s *executor.Spec) { s.Aliases = []string{"/mnt/../mnt/data"} },
	"an alias below /":              func(s *executor.Spec) { s.Aliases = []string{"/data"} },
	"an alias below Workdir":        func(s *executor.Spec) { s.Aliases = []string{executor.Workdir + "/data"} },
	"an alias below /tmp":           func(s *executor.Spec) { s.Aliases = []string{"/tmp/data"} },
	"an alias below another":        func(s *executor.Spec) { s.Aliases = []string{"/mnt/data", "/mnt/data/more"} },
	"a negative limit":              func(s *executor.Spec) { s.Limits.MemoryBytes = -1 },
	"a limit that is not a number":  func(s *executor.Spec) { s.Limits.CPUs = math.NaN() },
	"a negative wall time":          func(s *executor.Spec) { s.Run.WallTime = -2 },
	"a default beyond the ceiling":  func(s *executor.Spec) { s.Run.WallTime, s.MaxRun.WallTime = time.Minute, time.Second },
	"a negative idle TTL":           func(s *executor.Spec) { s.IdleTTL = -1 },
	"a negative life":               func(s *executor.Spec) { s.MaxLife = -1 },
	"an unknown isolation":          func(s *executor.Spec) { s.MinIsolation = "some" },
	"a language twice":              func(s *executor.Spec) { s.Languages = append(s.Languages, s.Languages...) },
	"packages of no language of it": func(s *executor.Spec) { s.Packages = []executor.Packages{{Language: "other", Names: []string{"x"}}} },
	"an option in place of a package": func(s *executor.Spec) {
		s.Packages = []executor.Packages{{Language: s.Languages[0], Names: []string{"--index-url=x"}}}
	},
}

// listed returns the sandboxes of the case that an Executor lists.
func (t *T) listed(x executor.Executor) (infos []executor.SessionInfo) {
	for i, err := range x.Sessions(t.Context(), t.Labels()) {
		t.must(err, "sessions")
		infos = append(infos, i)
	}
	return infos
}
