package cases

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// fencingCases are about holders that shut out others.
func fencingCases() []Case {
	none := func(t *T) {
		h := t.Shared().Info().Handle
		h.Fence = 1
		a, err := t.Executor().Attach(t.Context(), h)
		missing := executor.FeatureFencing
		if !t.Has(executor.FeatureAttach) {
			missing = executor.FeatureAttach
		}
		t.Refused("attach with a fence", err, missing)
		if err == nil {
			a.Detach()
		}
	}
	return []Case{
		{
			ID: "fencing/newest-wins", Feature: executor.FeatureFencing, Needs: []executor.Feature{executor.FeatureAttach}, Programs: []string{"remember", "recall"},
			Doc: "Attach with a fence shuts out holders with a lower one, the creator too, and an older fence no longer gets in.",
			Positive: func(t *T) {
				creator := t.Session()
				t.remembers(creator)
				fenced := func(fence int64) executor.Handle {
					h := creator.Info().Handle
					h.Fence = fence
					return h
				}
				first := t.attaches(t.Open(nil), fenced(5))
				shutOut(t, "the creator", creator)
				second := t.attaches(t.Open(nil), fenced(7))
				shutOut(t, "the first holder", first)
				for _, fence := range []int64{5, 6} {
					t.isNo(fmt.Sprintf("attach with the fence %d after 7", fence), errorOf(t.Open(nil).Attach(t.Context(), fenced(fence))), executor.ErrClosed)
				}
				t.recalls(second)
				t.noError(second.Close(), "close")
			},
			Negative: none,
		},
		{
			ID: "fencing/during-run", Feature: executor.FeatureFencing, Needs: []executor.Feature{executor.FeatureAttach}, Programs: []string{"spin", "recall"},
			Doc: "A holder that is shut out during its run is told so; the run is then the newer holder's to end.",
			Positive: func(t *T) {
				creator := t.Session()
				run := t.begin(creator, limited(t.Program("spin", "text", "ready"), 2*time.Second))
				h := creator.Info().Handle
				h.Fence = 3
				newer := t.attaches(t.Open(nil), h)
				res, err := run.wait(10 * time.Second)
				if err != nil {
					t.is("the run of a holder that was shut out", err, executor.ErrClosed, executor.RanYes)
				} else if res.Status != executor.StatusTimedOut && res.Status != executor.StatusKilled {
					t.Errorf("the run of a holder that was shut out: got %s", describe(res))
				}
				shutOut(t, "the creator", creator)
				t.eventuallyFree(newer, t.Program("recall"))
				t.noError(newer.Close(), "close")
			},
			Negative: none,
		},
	}
}

// shutOut checks that a holder can no longer do anything.
func shutOut(t *T, who string, s executor.Session) {
	t.runFails("a run of "+who+", who was shut out", s, t.Program("recall"), executor.ErrClosed)
	if t.Has(executor.FeatureFiles) {
		t.isNo("a write of "+who+", who was shut out", s.Files().Write(t.Context(), "x", strings.NewReader("x"), 0), executor.ErrClosed)
	}
}

// listCases are about finding sandboxes.
func listCases() []Case {
	noList := func(t *T) {
		t.Refused("sessions", onlyError(t, t.Executor().Sessions(t.Context(), nil)), executor.FeatureList)
	}
	return []Case{
		{
			ID: "list/labels", Feature: executor.FeatureList,
			Doc: "Sessions lists what carries all of the labels, whoever created it, with handle, labels and time; nothing else, and nothing that was closed.",
			Positive: func(t *T) {
				odd := `"quoted" a=b,c&d %41 \ end`
				a := t.Session(func(s *executor.Spec) { s.Labels = map[string]string{"shape": "round", "colour": "red"} })
				b := t.Session(func(s *executor.Spec) { s.Labels = map[string]string{"shape": "round", "colour": odd} })
				for _, x := range []executor.Executor{t.Executor(), t.Open(nil)} {
					for _, q := range []struct {
						labels map[string]string
						want   []executor.Session
					}{
						{map[string]string{"shape": "round"}, []executor.Session{a, b}},
						{map[string]string{"shape": "round", "colour": "red"}, []executor.Session{a}},
						{map[string]string{"colour": odd}, []executor.Session{b}},
						{map[string]string{"colour": "green"}, nil},
						{map[string]string{"colour": "red", "no-such": "label"}, nil},
					} {
						maps.Copy(q.labels, t.Labels())
						lists(t, x, q.labels, q.want...)
					}
				}
				t.noError(a.Close(), "close")
				lists(t, t.Executor(), t.Labels(), b)
				found := false
				for i, err := range t.Executor().Sessions(t.Context(), nil) {
					found = found || err == nil && i.Handle.Session == b.Info().Handle.Session
				}
				if !found {
					t.Errorf("without labels the sandbox is not listed")
				}
			},
			Negative: noList,
		},
		{
			ID: "list/left", Feature: executor.FeatureList,
			Doc: "The loop over Sessions may be left and repeated, and may use the session.",
			Positive: func(t *T) {
				for range 2 {
					t.Session()
				}
				seq := t.Executor().Sessions(t.Context(), t.Labels())
				for range 2 {
					for i, err := range seq {
						if err != nil || i.Handle.Session == "" {
							t.Errorf("got %+v, %v", i, err)
						}
						break
					}
				}
				ctx := t.over()
				for _, err := range t.Executor().Sessions(ctx, nil) {
					t.isNo("sessions with a context that has ended", err, context.Canceled)
					break
				}
			},
			Negative: noList,
		},
		{
			ID: "list/created-elsewhere", Feature: executor.FeatureList,
			Doc: "A sandbox whose process was killed is listed until it ends.",
			Positive: func(t *T) {
				h := t.orphan("create-and-wait")
				got := t.listed(t.Executor())
				if !slices.ContainsFunc(got, func(i executor.SessionInfo) bool { return i.Handle.Session == h.Session }) {
					t.Errorf("got %+v, want the sandbox %s", got, h.Session)
				}
				if t.Has(executor.FeatureAttach) {
					t.noError(t.Executor().Destroy(t.Context(), h), "destroy")
				}
				t.Eventually(5*time.Second, "the sandbox is gone", func() bool {
					return !slices.ContainsFunc(t.listed(t.Executor()), func(i executor.SessionInfo) bool { return i.State != executor.SessionDead })
				})
			},
			Negative: noList,
		},
	}
}

// noReserved checks that no label of the module itself is shown.
func (t *T) noReserved(labels map[string]string) {
	for k := range labels {
		if strings.HasPrefix(k, executor.ReservedPrefix) {
			t.Errorf("the reserved label %q is shown", k)
		}
	}
}

// lists checks what Sessions yields for labels.
func lists(t *T, x executor.Executor, labels map[string]string, want ...executor.Session) {
	var got, wanted []string
	for i, err := range x.Sessions(t.Context(), labels) {
		if err != nil {
			t.Errorf("sessions: %v", err)
			continue
		}
		got = append(got, i.Handle.Session)
		for k, v := range labels {
			if i.Labels[k] != v {
				t.Errorf("listed by %q: the label is %q, want %q", k, i.Labels[k], v)
			}
		}
		t.noReserved(i.Labels)
		if i.Created.IsZero() || i.State == "" || i.Handle.Type == "" || len(i.Capabilities.Languages) > 0 {
			t.Errorf("listed: got %+v, want handle, state and time, and no capabilities", i)
		}
	}
	for _, s := range want {
		wanted = append(wanted, s.Info().Handle.Session)
	}
	if !sameWords(got, wanted) {
		t.Errorf("listed by %v: got %q, want %q", labels, got, wanted)
	}
}
