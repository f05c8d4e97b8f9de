package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// attachCase makes a case about sessions of other holders, whose negative form is that they are
// refused.
func attachCase(id, doc string, programs []string, positive func(*T)) Case {
	return Case{
		ID: "attach/" + id, Feature: executor.FeatureAttach, Doc: doc, Programs: programs,
		Positive: positive,
		Negative: noAttach,
	}
}

// noAttach checks that the operations on sessions of other holders are refused.
func noAttach(t *T) {
	s := t.Shared()
	h := s.Info().Handle
	other := t.Open(nil)
	a, err := other.Attach(t.Context(), h)
	t.Refused("attach", err, executor.FeatureAttach)
	if err == nil {
		a.Close()
	}
	t.Refused("destroy of another's session", other.Destroy(t.Context(), h), executor.FeatureAttach)
	t.Refused("detach", s.Detach(), executor.FeatureAttach)
	t.Run(s, executor.Request{Language: t.Language()}) // it is still there
}

// attaches opens the session of h with another Executor, or ends the case.
func (t *T) attaches(x executor.Executor, h executor.Handle) executor.Session {
	s, err := x.Attach(t.Context(), h)
	t.must(err, "attach")
	return s
}

// attachCases are about sessions that another holder opens, destroys or has left.
func attachCases() []Case {
	return []Case{
		attachCase("other-process", "Another process attaches by the text of a handle, with the state and files that are there, and both holders go on.",
			[]string{"remember", "recall"}, fresh(func(t *T, s executor.Session) {
				t.remembers(s)
				want := "absent"
				if t.Has(executor.FeatureState) {
					want = t.own()
				}
				equal(t, "what the other process found", string(t.Child("recall", []byte(s.Info().Handle.String()))), want)
				t.says(s, t.Program("recall"), want)
			})),
		attachCase("created-elsewhere", "A session that another process created and detached is attached, used and closed here.",
			[]string{"remember", "recall"}, func(t *T) {
				h := t.handle(t.Child("create-and-detach", nil))
				s := t.attaches(t.Executor(), h)
				t.recalls(s)
				t.noError(s.Close(), "close")
				t.isNo("attach after close", errorOf(t.Executor().Attach(t.Context(), h)), executor.ErrNotFound)
			}),
		attachCase("holder-killed", "A session whose holder was killed in the middle of a run is attached, and Reset ends that run.",
			[]string{"spin", "recall"}, func(t *T) {
				h := t.orphan("create-and-spin")
				s := t.attaches(t.Executor(), h)
				if t.Has(executor.FeatureState) {
					t.must(s.Reset(t.Context(), executor.Interpreter{}), "reset")
				}
				start := time.Now()
				t.eventuallyFree(s, t.Program("recall"))
				t.prompt("a run after the reset", start, 10*time.Second)
				t.noError(s.Close(), "close")
			}),
		attachCase("detach", "Detach leaves the sandbox as it is; the session value is then closed.",
			[]string{"remember", "recall"}, fresh(func(t *T, s executor.Session) {
				t.remembers(s)
				h := s.Info().Handle
				t.must(s.Detach(), "detach")
				t.runFails("a run after detach", s, executor.Request{Language: t.Language()}, executor.ErrClosed)
				t.noError(s.Close(), "close after detach")
				again := t.attaches(t.Open(nil), h)
				t.recalls(again)
			})),
		attachCase("detach-during-run", "Detach cancels the runs of its holder.",
			[]string{"spin", "recall"}, fresh(func(t *T, s executor.Session) {
				h := s.Info().Handle
				run := t.spins(s)
				t.must(s.Detach(), "detach")
				_, err := run.wait(5 * time.Second)
				if err == nil {
					t.Errorf("the run of the holder that detached: got %s, want an error", run.outcome())
				}
				again := t.attaches(t.Open(nil), h)
				t.eventuallyFree(again, t.Program("recall"))
			})),
		attachCase("info", "An attached session has the limits and times that it was created with, and the labels.",
			[]string{"spin"}, func(t *T) {
				s := t.Session(func(spec *executor.Spec) {
					spec.Run.WallTime, spec.MaxRun.WallTime = time.Second, 5*time.Second
					spec.IdleTTL, spec.Labels = 10*time.Minute, map[string]string{"purpose": "attach"}
				})
				h, err := executor.ParseHandle(s.Info().Handle.String())
				t.must(err, "the handle does not come back from its text")
				again := t.attaches(t.Open(nil), h)
				got, want := again.Info(), s.Info()
				if got.Run != want.Run || got.MaxRun != want.MaxRun || got.Handle.IdleTTL != want.Handle.IdleTTL || got.Limits != want.Limits {
					t.Errorf("got %+v, want the limits of %+v", got, want)
				}
				if got.Labels["purpose"] != "attach" || !sameJSON(got.Capabilities, want.Capabilities) || !got.Created.Equal(want.Created) {
					t.Errorf("got %+v, want labels, capabilities and time of %+v", got, want)
				}
				t.timesOut(again, t.Program("spin", "text", "x"))
				t.runFails("a run beyond the ceiling", again, limited(t.Program("spin", "text", "x"), 6*time.Second), executor.ErrInvalid)
			}),
		attachCase("gone", "Attach to a sandbox that is gone is ErrNotFound; destroying it again is not an error.",
			nil, fresh(func(t *T, s executor.Session) {
				h := s.Info().Handle
				t.must(s.Close(), "close")
				for _, x := range []executor.Executor{t.Executor(), t.Open(nil)} {
					t.isNo("attach", errorOf(x.Attach(t.Context(), h)), executor.ErrNotFound)
					t.noError(x.Destroy(t.Context(), h), "destroy")
				}
				h.Session += "x"
				t.isNo("attach to a sandbox that never was", errorOf(t.Executor().Attach(t.Context(), h)), executor.ErrNotFound)
				t.noError(t.Executor().Destroy(t.Context(), h), "destroy of a sandbox that never was")
			})),
		attachCase("destroy", "Destroy from another process removes the sandbox under its holder, whose calls then fail with ErrNotFound.",
			[]string{"print"}, fresh(func(t *T, s executor.Session) {
				t.ok(s, t.Program("print", "text", "x"))
				t.Child("destroy", []byte(s.Info().Handle.String()))
				_, err := s.Run(t.Context(), t.Program("print", "text", "x"), nil)
				t.is("a run in a destroyed sandbox", err, executor.ErrNotFound, executor.RanMaybe)
				t.isNo("refresh of a destroyed sandbox", errorOf(s.Refresh(t.Context())), executor.ErrNotFound)
				t.noError(s.Close(), "close")
			})),
		attachCase("destroy-during-run", "Destroy by another holder ends a run in progress, which says so.",
			[]string{"spin"}, fresh(func(t *T, s executor.Session) {
				t.endsRun(s, func() error { return t.Open(nil).Destroy(t.Context(), s.Info().Handle) })
			})),
		attachCase("dead", "A sandbox that ended by its TTL is destroyed without an error, and then no longer listed.",
			nil, func(t *T) {
				s, _ := t.sessionFor(time.Second, idleFor)
				h := s.Info().Handle
				t.Eventually(4*time.Second, "the idle sandbox ends", func() bool { return t.gone(s) })
				t.isNo("attach to a dead sandbox", errorOf(t.Open(nil).Attach(t.Context(), h)), executor.ErrNotFound)
				t.Child("destroy", []byte(h.String()))
				if t.Has(executor.FeatureList) {
					t.listsNone("still listed", t.Executor())
				}
			}),
		attachCase("other-owner", "Sandboxes of another owner can neither be attached to, destroyed nor listed.",
			[]string{"remember", "recall"}, fresh(func(t *T, s executor.Session) {
				t.remembers(s)
				h := s.Info().Handle
				stranger := t.OpenAs("conformance-stranger")
				a, err := stranger.Attach(t.Context(), h)
				t.isNo("attach to another owner's sandbox", err, executor.ErrNotFound)
				if err == nil {
					a.Detach()
				}
				t.isNo("destroy of another owner's sandbox", stranger.Destroy(t.Context(), h), executor.ErrNotFound)
				if t.Has(executor.FeatureList) {
					t.listsNone("another owner's sandboxes are listed", stranger)
				}
				res := t.ok(s, t.Program("recall"))
				if t.Has(executor.FeatureState) && string(res.Stdout) != t.own()+"\n" {
					t.Errorf("the stranger has changed the sandbox: got %q", res.Stdout)
				}
			})),
		attachCase("two-holders", "Runs of two holders in one interpreter wait for each other or are ErrBusy; they never mix, and waiting is not a timeout.",
			[]string{"nap", "print", "count"}, fresh(func(t *T, s executor.Session) {
				other := t.attaches(t.Open(nil), s.Info().Handle)
				t.inTime(time.Second, func(wall time.Duration) error {
					nap := wall * 3 / 2 // the second run waits for longer than it may take
					run := t.begin(s, limited(t.Program("nap", "ms", nap.Milliseconds()), nap+20*time.Second))
					res, err := other.Run(t.Context(), limited(t.Program("print", "text", "second"), wall), nil)
					t.printed(run.ends("the run of the first holder", nap+10*time.Second, executor.StatusOK, ""), "begin\nend\n")
					switch {
					case err != nil:
						t.isNo("the run of the second holder", err, executor.ErrBusy)
					case res.Status != executor.StatusOK || string(res.Stdout) != "second\n":
						return fmt.Errorf("the run of the second holder: got %s and %q, want ok and its own output", describe(res), res.Stdout)
					}
					return nil
				})
				if !t.Has(executor.FeatureState) {
					return
				}
				for i := 1; i <= 6; i++ {
					t.says([]executor.Session{s, other}[i%2], t.Program("count"), strconv.Itoa(i))
				}
			})),
		attachCase("reset-by-other", "Reset by another holder ends a run, and the next run of the first holder says that it began anew.",
			[]string{"spin", "remember", "recall"}, func(t *T) {
				if !t.Has(executor.FeatureState) {
					t.Logf("%s has no state", t.Language())
					return
				}
				s := t.Session()
				t.remembers(s)
				other := t.attaches(t.Open(nil), s.Info().Handle)
				run := t.spins(s)
				t.must(other.Reset(t.Context(), executor.Interpreter{}), "reset")
				run.ends("the run that another holder reset", 5*time.Second, executor.StatusKilled, executor.ReasonReset)
				t.anew(s)
			}),
		attachCase("hung-holder", "A holder that does not take its output disturbs neither another one nor the sandbox.",
			[]string{"flood", "print"}, fresh(func(t *T, s executor.Session) {
				other := t.attaches(t.Open(nil), s.Info().Handle)
				release := make(chan struct{})
				run := t.start(s, limited(t.Program("flood"), 25*time.Second), func(ev executor.Event) error {
					if ev.Kind != executor.EventStdout {
						return nil
					}
					select {
					case <-release:
					case <-t.Context().Done():
					}
					return errStop
				})
				run.awaitStart()
				start := time.Now()
				t.noError(errorOf(other.Refresh(t.Context())), "refresh by the other holder")
				if t.Has(executor.FeatureFilesDuringRun) && t.Has(executor.FeatureFiles) {
					t.put(other.Files(), "file.txt", "x")
					t.holds(other.Files(), "file.txt", "x")
				}
				if t.Has(executor.FeatureState) {
					t.noError(other.Reset(t.Context(), executor.Interpreter{}), "reset by the other holder")
				}
				t.prompt("what the other holder does", start, 10*time.Second)
				close(release)
				run.wait(10 * time.Second)
				t.eventuallyFree(other, t.Program("print", "text", "free"))
			})),
		attachCase("forged-handle", "A handle is hostile input: what is private in it, or wrong, leads nowhere else and is no internal error.",
			[]string{"remember", "recall"}, forgedHandles),
		{
			ID: "attach/handle-text", PerLanguage: true,
			Doc: "The handle of a session comes back from its text and from JSON as it was, and damaged texts are ErrInvalid.",
			Positive: func(t *T) {
				h := t.Shared().Info().Handle
				text := h.String()
				back, err := executor.ParseHandle(text)
				if err != nil || back.String() != text {
					t.Errorf("got %v, %v, want %v", back, err, h)
				}
				var fromJSON executor.Handle
				data, err := json.Marshal(h)
				if err == nil {
					err = json.Unmarshal(data, &fromJSON)
				}
				if err != nil || fromJSON.String() != text {
					t.Errorf("from JSON: got %v, %v, want %v", fromJSON, err, h)
				}
				for _, bad := range []string{"", "x", text[1:], text[:len(text)/2], text + "!", strings.Repeat(text, 100)} {
					t.isNo("the handle "+excerpt(bad), errorOf(executor.ParseHandle(bad)), executor.ErrInvalid)
				}
			},
		},
	}
}

// handle parses what a child has sent.
func (t *T) handle(text []byte) executor.Handle {
	h, err := executor.ParseHandle(string(text))
	t.must(err, "the handle from the other process")
	return h
}

// orphan returns the handle of a session whose process, a child of that name, was killed.
func (t *T) orphan(child string) executor.Handle {
	c := t.StartChild(child, nil)
	defer c.Kill()
	return t.handle(c.Receive())
}

// eventuallyFree runs req in s as soon as the interpreter is free: a holder that went away may take
// a moment to be noticed.
func (t *T) eventuallyFree(s executor.Session, req executor.Request) {
	t.Eventually(10*time.Second, "the interpreter is free", func() bool {
		res, err := s.Run(t.Context(), limited(req, 20*time.Second), nil)
		if errors.Is(err, executor.ErrBusy) {
			return false
		}
		if err != nil || res.Status != executor.StatusOK {
			t.Fatalf("got %v, %v, want an ordinary run", res, err)
		}
		return true
	})
}

// forgedHandles attaches with handles that somebody has tampered with.
func forgedHandles(t *T) {
	s := t.Session()
	t.remembers(s)
	good := s.Info().Handle
	trap := t.listen("tcp", false)
	address := trap.addresses()[0]
	for what, edit := range map[string]func(*executor.Handle){
		"of another type":               func(h *executor.Handle) { h.Type = "other" },
		"with a name that climbs":       func(h *executor.Handle) { h.Session = "../../" + h.Session },
		"with a name that is an option": func(h *executor.Handle) { h.Session = "--all" },
		"with an odd name":              func(h *executor.Handle) { h.Session = "a b/c?d=e&f%00\n渐" },
		"with a long name":              func(h *executor.Handle) { h.Session = strings.Repeat("n", 2000) },
		"with a prefix of the name":     func(h *executor.Handle) { h.Session = h.Session[:len(h.Session)-1] },
	} {
		h := good
		edit(&h)
		_, err := t.Executor().Attach(t.Context(), h)
		if err == nil || !errors.Is(err, executor.ErrInvalid) && (h.Type != good.Type || !errors.Is(err, executor.ErrNotFound)) {
			t.Errorf("attach with a handle %s: got %v, want ErrInvalid, or ErrNotFound if only the name is wrong", what, err)
		}
		if err := t.Executor().Destroy(t.Context(), h); err != nil && !errors.Is(err, executor.ErrNotFound) && !errors.Is(err, executor.ErrInvalid) {
			t.Errorf("destroy with a handle %s: %v", what, err)
		}
	}
	for _, state := range []string{
		`null`, `{}`, `[]`, `"x"`, `{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`, redirect(good.State, address),
	} {
		h := good
		h.State = json.RawMessage(state)
		h.Meta = map[string]string{"address": address}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		a, err := t.Open(nil).Attach(ctx, h)
		cancel()
		var e *executor.Error
		switch {
		case err == nil: // it took everything from elsewhere
			t.recalls(a)
			t.noError(a.Detach(), "detach")
		case !errors.As(err, &e) || errors.Is(err, executor.ErrInternal):
			t.Errorf("attach with the state %s: got %v", excerpt(state), err)
		}
	}
	noneOf(t, "the state of a handle has led to a stranger's address", trap.calls())
	t.recalls(s)
}

// redirect returns the private state of a handle with every string in it that may be an address
// replaced by another.
func redirect(state json.RawMessage, address string) string {
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			if strings.Contains(v, "://") {
				return "http://" + address
			}
			if strings.Contains(v, ":") || strings.Count(v, ".") == 3 {
				return address
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		}
		return v
	}
	var v any
	if json.Unmarshal(state, &v) != nil {
		v = map[string]any{"address": address, "host": address, "url": "http://" + address}
	}
	text, err := json.Marshal(walk(v))
	if err != nil {
		return "{}"
	}
	return string(text)
}

// attachChildren are the functions that these cases call in another process.
func attachChildren() map[string]Child {
	return map[string]Child{
		"recall": func(t *T, in []byte) []byte {
			s := t.attaches(t.Executor(), t.handle(in))
			out := t.stdout(s, t.Program("recall"))
			t.noError(s.Detach(), "detach")
			return []byte(out)
		},
		"destroy": func(t *T, in []byte) []byte {
			h := t.handle(in)
			for range 2 {
				t.noError(t.Executor().Destroy(t.Context(), h), "destroy")
			}
			return nil
		},
		"create-and-detach": func(t *T, _ []byte) []byte {
			s := t.Session()
			t.remembers(s)
			h := s.Info().Handle
			t.noError(s.Detach(), "detach")
			return []byte(h.String())
		},
		// create-and-spin runs code for ever, and create-and-wait does nothing, until they are
		// killed.
		"create-and-spin": func(t *T, _ []byte) []byte {
			s := t.Session(idleFor(time.Minute))
			t.spins(s)
			t.Send([]byte(s.Info().Handle.String()))
			t.Receive()
			return nil
		},
		"create-and-wait": func(t *T, _ []byte) []byte {
			s, _ := t.sessionFor(4*time.Second, idleFor)
			t.Send([]byte(s.Info().Handle.String()))
			t.Receive()
			return nil
		},
	}
}
