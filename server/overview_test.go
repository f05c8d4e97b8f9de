package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// TestOverview: operators see the sessions and failures of all keys, without what lets them use
// them, and choose a backend. No other key does.
func TestOverview(t *testing.T) {
	const operator = "key-of-an-operator-0123456789"
	keys, err := ParseKeys([]byte(`[{"key": "` + operator + `", "subject": "ops", "operator": true}]`))
	if err != nil {
		t.Fatal(err)
	}
	as := []string{"Authorization", "Bearer " + operator}
	other, err := fake.New(fake.Options{}).Open(driver.Env{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	var fail error
	w := newWorld(t, fake.Options{}, Config{
		Keys:     keys,
		Backends: func() map[string]executor.Executor { return map[string]executor.Executor{"other": other} },
		Overview: func(context.Context) (Overview, error) {
			return Overview{Backends: []BackendStatus{{Name: "box", Breaker: "open"}}, Sessions: []LiveSession{{Subject: "nobody"}}}, fail
		},
	})
	alices := w.session("{}")
	w.want(404, "GET", alices, "", as...)
	w.want(400, "POST", "/v1/run", "{", "Authorization", "Bearer "+bob)
	got := w.want(200, "GET", "/v1/overview", "", as...)
	has(t, got, `"sessions":[{"subject":"alice","backend":"box"`, `"keys":[{"subject":"alice"`, `"operation":"POST /v1/run","status":400,"kind":"invalid"`,
		`"backends":[{"name":"box","sessions":0,"waiting":0,"breaker":"open"}]`, `"arms":[],"used":[]`)
	if id := strings.TrimPrefix(alices, "/v1/sessions/"); strings.Contains(got, id) || strings.Contains(got, alice) {
		t.Errorf("got what belongs to alice: %s", got)
	}
	has(t, w.want(403, "GET", "/v1/overview", ""), `"kind":"denied"`, "not that of an operator")
	w.want(401, "GET", "/v1/overview", "", "Authorization", "Bearer wrong")

	has(t, w.want(200, "GET", "/v1/capabilities", "", as...), `"operator":true,"backends":["other"]`)
	if got := w.want(200, "GET", "/v1/capabilities", ""); strings.Contains(got, "operator") || strings.Contains(got, `"backends"`) {
		t.Errorf("got %s", got)
	}
	has(t, w.want(201, "POST", "/v1/sessions", `{"backend": "other"}`, as...), `"backend":"other"`)
	has(t, w.want(400, "POST", "/v1/sessions", `{"backend": "absent"}`, as...), `want one of [\"other\"]`)
	has(t, w.want(403, "POST", "/v1/sessions", `{"backend": "other"}`), "not that of an operator")

	for range maxFailures + 5 {
		w.want(404, "GET", "/v1/sessions/absent", "")
	}
	if got := len(decode[Overview](t, w.want(200, "GET", "/v1/overview", "", as...)).Failures); got != maxFailures {
		t.Errorf("got %d failures, want %d", got, maxFailures)
	}
	fail = &executor.Error{Op: "usage", Kind: executor.ErrUnavailable, Ran: executor.RanNo, Err: errors.New("the address of the store")}
	if got := w.want(503, "GET", "/v1/overview", "", as...); strings.Contains(got, "address") {
		t.Errorf("got %s", got)
	}
}
