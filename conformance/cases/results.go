package cases

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// resultCases are about what holds for every run.
func resultCases() []Case {
	return []Case{
		{
			ID: "runs/result", PerLanguage: true, Programs: []string{"print"},
			Doc: "A result has the ID of its request or one of its own, where it ran, and plausible times.",
			Positive: shared(func(t *T, s executor.Session) {
				begin := time.Now()
				req := t.Program("print", "text", "x")
				req.ID = "Run.1_a-b"
				first := t.ok(s, req)
				took := time.Since(begin)
				equal(t, "ID", first.ID, req.ID)
				second, third := t.ok(s, t.Program("print", "text", "x")), t.ok(s, t.Program("print", "text", "x"))
				if second.ID == "" || second.ID == third.ID || second.ID == first.ID {
					t.Errorf("IDs that were made: got %q and %q, want two different ones", second.ID, third.ID)
				}
				if first.Duration <= 0 || first.Queued < 0 || first.Duration+first.Queued > took+time.Millisecond {
					t.Errorf("duration %v, queued %v of a call that took %v", first.Duration, first.Queued, took)
				}
				if d := first.Started.Sub(begin); d < -time.Second || d > took+time.Second {
					t.Errorf("started %v, the call began at %v and took %v", first.Started, begin, took)
				}
				if o := first.Origin; o.Backend != t.Executor().Info().Name || o.Session != s.Info().Handle.Session {
					t.Errorf("origin: got %+v, want the backend and the session", o)
				}
				if first.Usage.CPU < 0 || first.Usage.PeakMemory < 0 || first.ExitCode != 0 || first.Exception != nil || first.Err() != nil {
					t.Errorf("got %s with usage %+v", describe(first), first.Usage)
				}
			}),
		},
		{
			ID: "runs/one-shot", PerLanguage: true, Programs: []string{"print"},
			Doc: "The function Run creates a sandbox for the language of its request, runs that and destroys it.",
			Positive: func(t *T) {
				spec := t.Spec(languages())
				res, err := executor.Run(t.Context(), t.Executor(), spec, t.Program("print", "text", "once"))
				if err != nil || string(res.Stdout) != "once\n" {
					t.Errorf("got %v, %v, want what was printed", res, err)
				}
				t.noSandbox("a run that is over")
			},
		},
		{
			ID: "runs/default-language", PerLanguage: true, Programs: []string{"print"},
			Doc: "Code without a language is in the first one of the session.",
			Positive: func(t *T) {
				req := t.Program("print", "text", "x")
				req.Language = ""
				t.says(t.Shared(), req, "x")
			},
		},
		{
			ID: "runs/many", PerLanguage: true, Programs: []string{"print"},
			Doc: "A hundred runs of a session each get their own answer.",
			Positive: shared(func(t *T, s executor.Session) {
				for i := range 100 {
					t.says(s, t.Program("print", "text", "run "+strconv.Itoa(i)), "run "+strconv.Itoa(i))
				}
			}),
		},
		{
			ID: "runs/json", PerLanguage: true, Programs: []string{"write-bytes", "raise"},
			Doc: "Results and events of real runs come back from JSON as they were.",
			Positive: shared(func(t *T, s executor.Session) {
				for _, req := range []executor.Request{t.Program("write-bytes", "chunks", "61 ff00 e6b890"), t.Program("raise", "message", "渐")} {
					res, events := t.events(s, req)
					back := &executor.Result{}
					roundTrip(t, res, back)
					for _, ev := range events {
						roundTrip(t, &ev, &executor.Event{})
					}
					t.printed(back, string(res.Stdout))
				}
			}),
		},
		{
			ID: "runs/invalid", PerLanguage: true, Programs: []string{"print"},
			Doc: "A request that no session could accept is ErrInvalid with RanNo, and the session goes on.",
			Positive: shared(func(t *T, s executor.Session) {
				l := t.Language()
				for what, req := range map[string]executor.Request{
					"neither code nor command": {},
					"code and command":         {Language: l, Code: "x", Command: []string{"true"}},
					"an empty command":         {Command: []string{}},
					"a command without a name": {Command: []string{""}},
					"a bad ID":                 {Language: l, ID: "../id"},
					"code that is not UTF-8":   {Language: l, Code: "\xff"},
					"a negative wall time":     {Language: l, Limits: executor.RunLimits{WallTime: -2}},
					"a negative output limit":  {Language: l, Limits: executor.RunLimits{OutputBytes: -1}},
					"a variable without name":  {Language: l, Env: map[string]string{"": "x"}},
					"a directory that climbs":  {Language: l, Dir: "../above"},
					"a glob that is none":      {Language: l, Artifacts: &executor.ArtifactRequest{Globs: []string{"[a"}}},
					"an absolute glob":         {Language: l, Artifacts: &executor.ArtifactRequest{Globs: []string{"/etc/*"}}},
				} {
					res, err := s.Run(t.Context(), req, func(ev executor.Event) error {
						t.Errorf("%s: the event %s", what, ev.Kind)
						return nil
					})
					t.isNo(what, err, executor.ErrInvalid)
					t.noResult(what, res)
				}
				t.says(s, t.Program("print", "text", "next"), "next")
			}),
		},
		{
			ID: "errors/form", PerLanguage: true, Programs: []string{"print"},
			Doc: "Every error is an *Error with operation, backend and session, and only failures of the backend are retryable.",
			Positive: fresh(func(t *T, s executor.Session) {
				_, invalid := s.Run(t.Context(), executor.Request{}, nil)
				_, refused := s.Run(t.Context(), executor.Request{Language: "no-such-language"}, nil)
				_, create := t.Executor().Create(t.Context(), t.Spec(template("conformance-no-such-template")))
				t.noError(s.Close(), "close")
				_, closed := s.Run(t.Context(), t.Program("print", "text", "x"), nil)
				for what, e := range map[string]struct {
					err  error
					op   string
					kind error
				}{
					"invalid": {invalid, "run", executor.ErrInvalid},
					"refused": {refused, "run", executor.ErrUnsupported},
					"create":  {create, "create", executor.ErrUnsupported},
					"closed":  {closed, "run", executor.ErrClosed},
				} {
					t.isNo(what, e.err, e.kind)
					var got *executor.Error
					if !errors.As(e.err, &got) {
						continue
					}
					if got.Op != e.op || got.Backend != t.Executor().Info().Name {
						t.Errorf("%s: got the operation %q of the backend %q, want %q of %q", what, got.Op, got.Backend, e.op, t.Executor().Info().Name)
					}
					if e.op == "run" && got.Session != s.Info().Handle.Session {
						t.Errorf("%s: got the session %q, want %q", what, got.Session, s.Info().Handle.Session)
					}
					t.notRetryable(e.err)
					if e.kind == executor.ErrUnsupported && !errors.Is(e.err, errors.ErrUnsupported) {
						t.Errorf("%s: not errors.ErrUnsupported: %v", what, e.err)
					}
				}
			}),
		},
		{
			ID: "errors/no-secrets", PerLanguage: true, Programs: []string{"spin"},
			Doc: "No error, handle or info holds what was passed as environment, input or code.",
			Positive: func(t *T) {
				const secret = "c0nf0rmance-s3cret"
				env := map[string]string{"SECRET": secret}
				s := t.Session(func(spec *executor.Spec) {
					if t.Has(executor.FeatureEnv) {
						spec.Env = env
					}
				})
				var texts []string
				note := func(err error) {
					for ; err != nil; err = errors.Unwrap(err) {
						texts = append(texts, fmt.Sprintf("%v %+v %q", err, err, err))
					}
				}
				request := func() executor.Request {
					req := limited(t.Program("spin", "text", secret), 25*time.Second)
					if t.Has(executor.FeatureEnv) {
						req.Env = env
					}
					if t.Has(executor.FeatureStdin) {
						req.Stdin = strings.NewReader(secret)
					}
					return req
				}
				run := t.begin(s, request())
				note(errorOf(s.Run(t.Context(), request(), nil))) // busy
				note(errorOf(run.stop()))
				note(errorOf(s.Run(t.Context(), limited(request(), -2), nil)))
				note(errorOf(t.Executor().Create(t.Context(), t.Spec(func(spec *executor.Spec) {
					spec.Env, spec.Template = env, "conformance-no-such-template"
				}))))
				info := s.Info()
				text, err := json.Marshal(info)
				note(err)
				texts = append(texts, fmt.Sprintf("%+v", info), info.Handle.String(), string(text))
				note(errorOf(s.Files().Stat(t.Context(), "none")))
				run = t.begin(s, request())
				note(s.Close())
				note(errorOf(run.wait(5 * time.Second)))
				note(errorOf(s.Run(t.Context(), request(), nil)))
				for _, text := range texts {
					if strings.Contains(text, secret) {
						t.Errorf("the secret is in %s", excerpt(strings.ReplaceAll(text, secret, "[the secret]")))
					}
				}
			},
		},
	}
}

// roundTrip checks that v is the same after JSON has been made of it and read into back.
func roundTrip(t *T, v, back any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, back)
	}
	again, err2 := json.Marshal(back)
	if err := errors.Join(err, err2); err != nil || string(again) != string(text) {
		t.Errorf("%T came back from JSON as %s, %v, want %s", v, excerpt(string(again)), err, excerpt(string(text)))
	}
}
