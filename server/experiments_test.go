package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestExperiments: operators read the figures of all, and no other key does.
func TestExperiments(t *testing.T) {
	const operator = "key-of-an-operator-0123456789"
	keys, err := ParseKeys([]byte(`[{"key": "` + operator + `", "operator": true}]`))
	if err != nil {
		t.Fatal(err)
	}
	as := []string{"Authorization", "Bearer " + operator}
	var fail error
	w := newWorld(t, fake.Options{}, Config{Keys: keys, Experiments: func(context.Context) ([]rollout.Experiment, error) {
		return []rollout.Experiment{{Route: "chat", Since: time.Unix(1e9, 0).UTC(), Arms: []rollout.Arm{{Backend: "box", Success: rollout.NewRate(9, 10), Cost: 1_500_000}}, Verdict: (*rollout.Report)(nil).Verdict(0)}}, fail
	}})
	got := w.want(200, "GET", "/v1/experiments", "", as...)
	has(t, got, `"experiments":[{"route":"chat","since":"2001-09-09T01:46:40Z","replica":""`, `"success":{"part":9,"of":10,"share":0.9,"low":0.59`, `"cost":"1.5"`, `"verdict":{"text":"No rollout decides`)
	for _, path := range []string{"/v1/experiments", "/v1/experiments?operator=true"} {
		has(t, w.want(403, "GET", path, ""), `"kind":"denied"`, `"ran":"no"`, "not that of an operator")
	}
	w.want(401, "GET", "/v1/experiments", "", "Authorization", "Bearer wrong")
	w.want(405, "POST", "/v1/experiments", "{}", as...)
	fail = &executor.Error{Op: "experiments", Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: errors.New("the address of the store")}
	if got := w.want(503, "GET", "/v1/experiments", "", as...); strings.Contains(got, "address") {
		t.Errorf("got %s", got)
	}

	keys, err = ParseKeys([]byte(`[{"key": "` + operator + `", "operator": true}]`))
	if err != nil {
		t.Fatal(err)
	}
	has(t, newWorld(t, fake.Options{}, Config{Keys: keys}).want(200, "GET", "/v1/experiments", "", as...), `{"experiments":[]}`)
}
