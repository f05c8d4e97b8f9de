package live

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What a request means for the bounds. The timeout of a command in a Machine is not its end: a
// Machine has none.
func TestMeaning(t *testing.T) {
	t.Setenv("LIVE_KEY", "key")
	key := map[string]json.RawMessage{"api_key": []byte(`{"env": "LIVE_KEY"}`), "token": []byte(`{"env": "LIVE_KEY"}`), "app": []byte(`"app"`)}
	for _, c := range []struct {
		typ, request, body string
		want               call
	}{
		{"e2b", "POST /sandboxes", `{"timeout": 60}`, call{create: true, seconds: 60}},
		{"e2b", "POST /sandboxes/i/timeout", `{"timeout": 90}`, call{id: "i", seconds: 90}},
		{"e2b", "POST /sandboxes/i/refreshes", `{"duration": 30}`, call{id: "i", seconds: 30}},
		{"e2b", "DELETE /sandboxes/i", "", call{id: "i", destroy: true}},
		{"e2b", "GET /v2/sandboxes", "", call{}},
		{"e2b", "GET /templates", `{"timeout": 60}`, call{}},
		{"flymachines", "POST /v1/apps/app/machines", `{}`, call{create: true}},
		{"flymachines", "POST /v1/apps/app/machines/i/exec", `{"timeout": 10}`, call{id: "i"}},
		{"flymachines", "DELETE /v1/apps/app/machines/i?force=true", "", call{id: "i", destroy: true}},
		{"flymachines", "GET /v1/apps/app", "", call{}},
	} {
		svc, err := (&Options{Type: c.typ, Settings: key}).service()
		if err != nil {
			t.Fatal(err)
		}
		method, path, _ := strings.Cut(c.request, " ")
		if got := svc.meaning(httptest.NewRequest(method, path, http.NoBody), []byte(c.body)); got != c.want {
			t.Errorf("%s: %s: got %+v, want %+v", c.typ, c.request, got, c.want)
		}
	}
}

// Addresses come from the settings of the adapter, or from its domain.
func TestAddress(t *testing.T) {
	t.Setenv("E2B_API_KEY", "key")
	for settings, want := range map[string]string{
		`{}`:                                 "https://api.e2b.app",
		`{"domain": "e2b.test"}`:             "https://api.e2b.test",
		`{"api_url": "http://127.0.0.1:49"}`: "http://127.0.0.1:49",
	} {
		o := &Options{Type: "e2b"}
		if err := json.Unmarshal([]byte(settings), &o.Settings); err != nil {
			t.Fatal(err)
		}
		if svc, err := o.service(); err != nil || svc.upstream.String() != want {
			t.Errorf("%s: got %v, %v, want %s", settings, svc, err, want)
		}
	}
}
