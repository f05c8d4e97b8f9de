package backends_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestExposures: the audit tells once of each session which arm it was assigned to, and how.
func TestExposures(t *testing.T) {
	bubble(t, fake.Options{}, func(w *world) {
		answer := func(context.Context, backends.ArmChoice) (string, error) { return "", nil }
		var exposures []backends.Exposure
		var errs []string
		b := w.open(experimentFile, backends.WithAudit(func(a backends.Audit) {
			if a.Exposure != nil {
				exposures = append(exposures, *a.Exposure)
				errs = append(errs, a.Op+a.Error)
				if a.Origin.Assigned != a.Exposure.Variant {
					w.Errorf("assigned to %s, and exposed to %s", a.Origin.Assigned, a.Exposure.Variant)
				}
			}
		}), backends.WithArms(func(ctx context.Context, c backends.ArmChoice) (string, error) { return answer(ctx, c) }))
		defer w.close(b)
		used := map[string]bool{}
		of := func(arm string) executor.Spec {
			return executor.Spec{Subject: subjectOf(w.T, b, arm, used), Attributes: map[string]string{"plan": "pro"}}
		}
		is := func(name string, spec executor.Spec, variant, reason, message string) {
			w.Helper()
			exposures = nil
			s := w.create(b, spec)
			w.says(s, "print(1)", "1\n")
			if got := s.Info().Handle.Backend; got != variant {
				w.Errorf("%s: on %s, want %s", name, got, variant)
			}
			if err := s.Close(); err != nil {
				w.Error(err)
			}
			if len(exposures) != 1 {
				w.Fatalf("%s: got %+v", name, exposures)
			}
			if e := exposures[0]; e.Key != "r" || e.Variant != variant || e.Reason != reason || e.ContextID != spec.Subject || (e.ErrorType != "") != (message != "") || !strings.Contains(e.ErrorMessage, message) || len(e.ErrorMessage) > 500 {
				w.Errorf("%s: got %+v", name, e)
			}
		}
		is("hash", of("b"), "b", "split", "")
		want := of("a")
		answer = func(ctx context.Context, c backends.ArmChoice) (string, error) {
			if _, ok := ctx.Deadline(); !ok || c.Route != "r" || c.Subject != want.Subject || c.Attributes["plan"] != "pro" || len(c.Arms) != 2 || c.Arms[1].Backend != "b" || c.Arms[1].Weight != 1 {
				w.Errorf("got %+v", c)
			}
			return "b", nil
		}
		is("chosen", want, "b", "targeting_match", "")
		is("chosen again", want, "b", "targeting_match", "")
		answer = func(context.Context, backends.ArmChoice) (string, error) { return "c", nil }
		is("unknown", of("a"), "a", "error", `"c" has no weight in the split`)
		answer = func(context.Context, backends.ArmChoice) (string, error) {
			return "b", errors.New(strings.Repeat("é", 600))
		}
		is("failed", of("a"), "a", "error", "é")
		answer = func(ctx context.Context, _ backends.ArmChoice) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		began := time.Now()
		is("hangs", of("b"), "b", "error", "deadline")
		if took := time.Since(began); took > 2*time.Second {
			w.Errorf("took %v", took)
		}

		// What fails counts for the arm that was chosen, also within an Acquire.
		answer = func(context.Context, backends.ArmChoice) (string, error) { return "b", nil }
		_, arms := experiment(w.T, b)
		before := arms["b"]
		exposures, errs = nil, nil
		for _, name := range []string{"a", "b"} {
			w.at[name].Fail(fake.OpCreate, 1, unavailable)
		}
		if _, err := b.Manager().Acquire(w.Context(), "chat", of("a")); !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v", err)
		}
		if len(errs) != 1 || errs[0] != "createunavailable" || exposures[0].Variant != "b" {
			w.Errorf("got %q, %+v", errs, exposures)
		}
		if _, arms = experiment(w.T, b); arms["b"].Outcomes[rollout.Outage] != before.Outcomes[rollout.Outage]+1 || arms["a"].Outcomes[rollout.Outage] != 0 {
			w.Errorf("got %+v", arms)
		}

		// Who is refused, or goes to a backend without a choice, is exposed to nothing.
		exposures = nil
		spec := of("a")
		spec.Packages = []executor.Packages{{Names: []string{"evil"}}}
		if _, err := b.Create(w.Context(), spec); !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v", err)
		}
		x, _ := b.Backend("a")
		if err := w.create(x, executor.Spec{}).Close(); err != nil {
			w.Error(err)
		}
		cfg := parse(w.T, strings.Replace(experimentFile, "{backend: b, weight: 1}", "{backend: b, weight: 0}", 1))
		if err := b.Reload(w.Context(), cfg); err != nil {
			w.Fatal(err)
		}
		s := w.create(b, executor.Spec{Subject: "someone"})
		if got := s.Info().Handle.Backend; got != "a" {
			w.Errorf("the choice overrules a weight of 0: got %s", got)
		}
		if err := s.Close(); err != nil {
			w.Error(err)
		}
		if len(exposures) > 0 {
			w.Errorf("got %+v", exposures)
		}

		text, err := json.Marshal(backends.Exposure{Key: "r", Variant: "b", Reason: "error", ContextID: "u", ProviderName: "execbroker", ErrorType: "general", ErrorMessage: "m"})
		var fields map[string]string
		if err != nil || json.Unmarshal(text, &fields) != nil || !maps.Equal(fields, map[string]string{
			"feature_flag.key": "r", "feature_flag.result.variant": "b", "feature_flag.result.reason": "error", "feature_flag.context.id": "u",
			"feature_flag.provider.name": "execbroker", "error.type": "general", "error.message": "m",
		}) {
			w.Errorf("got %s, %v", text, err)
		}
	})
}

// flagClient has the shape of the client of a feature-flag service, such as OpenFeature's.
type flagClient struct{ flags map[string]map[string]string }

func (f flagClient) StringValue(_ context.Context, flag, otherwise string, subject string, _ map[string]any) (string, error) {
	if v, ok := f.flags[flag][subject]; ok {
		return v, nil
	}
	return otherwise, nil
}

// A feature-flag service chooses the arms of the subjects that it knows.
func ExampleWithArms() {
	ctx := context.Background()
	cfg, err := backends.Parse([]byte(`
backends: {now: {type: fake}, next: {type: fake}}
routes: [{name: chat, split: [{backend: now, weight: 99}, {backend: next, weight: 1}]}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := flagClient{flags: map[string]map[string]string{"chat": {"alice": "next"}}}
	b, err := backends.Open(ctx, driver.Env{Owner: "shop-prod"}, exampleRegistry(), cfg,
		backends.WithArms(func(ctx context.Context, c backends.ArmChoice) (string, error) {
			about := map[string]any{}
			for k, v := range c.Attributes {
				about[k] = v
			}
			return client.StringValue(ctx, c.Route, "", c.Subject, about)
		}),
		backends.WithAudit(func(a backends.Audit) {
			if e := a.Exposure; e != nil {
				fmt.Println(e.ContextID, e.Key, e.Variant, e.Reason)
			}
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	for _, who := range []string{"alice", "bob"} {
		s, err := b.Create(ctx, executor.Spec{Subject: who})
		if err != nil {
			fmt.Println(err)
			return
		}
		s.Close()
	}
	// Output:
	// alice chat next targeting_match
	// bob chat now split
}
