package e2b

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

func TestCreate(t *testing.T) {
	few := fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureNetworkAllowlist, executor.FeatureEnv)}
	bounded := Config{MaxNetwork: executor.NetworkNone, Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}}
	for name, c := range map[string]struct {
		options fake.Options
		config  Config
		path    string
		body    string
		status  int
		message string
	}{
		"v1":               {path: "/sandboxes", body: `{"templateID": "code-interpreter-v1", "secure": true}`, status: 201},
		"v2":               {path: "/v2/sandboxes", body: `{"templateID": "base", "timeout": 60, "metadata": {"Ä b": "&="}, "envVars": {"A": "1"}}`, status: 201},
		"template":         {path: "/v2/sandboxes", body: `{"templateID": "data-science"}`, status: 201},
		"no-internet":      {path: "/v2/sandboxes", body: `{"templateID": "base", "allow_internet_access": false}`, status: 201},
		"internet":         {path: "/v2/sandboxes", body: `{"templateID": "base", "allow_internet_access": true}`, status: 201},
		"allow-list":       {path: "/v2/sandboxes", body: `{"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["example.org"]}}`, status: 201},
		"kill-on-timeout":  {path: "/v2/sandboxes", body: `{"templateID": "base", "autoPause": false}`, status: 201},
		"empty-extras":     {path: "/v2/sandboxes", body: `{"templateID": "base", "mcp": null, "volumeMounts": []}`, status: 201},
		"unknown-template": {path: "/v2/sandboxes", body: `{"templateID": "nothing"}`, status: 404, message: `template "nothing" not found`},
		"no-template":      {path: "/v2/sandboxes", body: `{}`, status: 404, message: `template "" not found`},
		"timeout-0":        {path: "/sandboxes", body: `{"templateID": "base", "timeout": 0}`, status: 400, message: "Timeout must be greater than 0"},
		"timeout-huge":     {path: "/sandboxes", body: `{"templateID": "base", "timeout": 9223372036854775807}`, status: 400, message: "Timeout cannot be greater than 24h0m0s"},
		"pause-on-timeout": {path: "/v2/sandboxes", body: `{"templateID": "base", "autoPause": true, "autoResume": {"enabled": true}}`, status: 201},
		"volumes":          {path: "/v2/sandboxes", body: `{"templateID": "base", "volumeMounts": [{"name": "a", "path": "/a"}]}`, status: 501, message: "volumeMounts"},
		"deny-some":        {path: "/v2/sandboxes", body: `{"templateID": "base", "network": {"denyOut": ["10.0.0.0/8"]}}`, status: 501, message: "denyOut"},
		"bad-host":         {path: "/v2/sandboxes", body: `{"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["a b"]}}`, status: 400, message: "not a host name"},
		"unknown-field":    {path: "/v2/sandboxes", body: `{"templateID": "base", "tiemout": 1}`, status: 400, message: "tiemout"},
		"not-json":         {path: "/v2/sandboxes", body: `{"templateID": "ba`, status: 400},
		"two-objects":      {path: "/v2/sandboxes", body: `{"templateID": "base"}{}`, status: 400},
		"endless":          {path: "/v2/sandboxes", body: `{"templateID": "` + strings.Repeat("x", maxJSON) + `"}`, status: 413},
		"missing-network":  {options: few, path: "/v2/sandboxes", body: `{"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["example.org"]}}`, status: 501, message: "network-allowlist"},
		"no-more-hosts":    {config: bounded, path: "/v2/sandboxes", body: `{"templateID": "base", "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["example.org"]}}`, status: 403, message: "gives no network"},
		"less-network":     {config: bounded, path: "/v2/sandboxes", body: `{"templateID": "base", "allow_internet_access": false}`, status: 201},
		"missing-env":      {options: few, path: "/v2/sandboxes", body: `{"templateID": "base", "envVars": {"A": "1"}}`, status: 501, message: "env:python"},
		"bad-env":          {path: "/v2/sandboxes", body: `{"templateID": "base", "envVars": {"A=": "1"}}`, status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.options, c.config)
			rec := w.want(c.status, "POST", c.path, c.body)
			if !strings.Contains(rec.Body.String(), strings.ReplaceAll(c.message, `"`, `\"`)) {
				t.Errorf("got %s, want it to say %q", rec.Body, c.message)
			}
			if c.status != http.StatusCreated {
				if n := len(w.b.Sandboxes()); n != 0 {
					t.Errorf("got %d sandboxes after a refusal", n)
				}
				return
			}
			a := decode[sandboxAnswer](t, rec)
			if len(a.SandboxID) != 21 || a.EnvdVersion != envdVersion || len(a.EnvdAccessToken) < 20 || a.TrafficAccessToken != nil {
				t.Errorf("got %+v", a)
			}
			if n := len(w.b.Sandboxes()); n != 1 {
				t.Errorf("got %d sandboxes, want 1", n)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	for name, key := range map[string]string{"wrong": "e2b_0", "none": "", "longer": alice + "0"} {
		for _, target := range []string{"/sandboxes/" + id, "/v2/sandboxes", "/sandboxes", "/snapshots"} {
			if e := decode[apiError](t, w.want(401, "GET", target, "", "X-API-KEY", key)); strings.Contains(e.Message, "e2b_") {
				t.Errorf("%s: the key is in %q", name, e.Message)
			}
		}
		w.want(401, "POST", "/v2/sandboxes", `{"templateID": "base"}`, "X-API-KEY", key)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/sandboxes/", ""}, {"DELETE", "/sandboxes/", ""}, {"POST", "/sandboxes/%s/timeout", `{"timeout": 1}`},
		{"POST", "/sandboxes/%s/refreshes", `{"duration": 1}`}, {"POST", "/v2/sandboxes/%s/connect", ""},
		{"POST", "/sandboxes/%s/pause", ""}, {"GET", "/sandboxes/%s/metrics", ""},
	} {
		target := c.path + id
		if strings.Contains(c.path, "%s") {
			target = fmt.Sprintf(c.path, id)
		}
		w.want(404, c.method, target, c.body, "X-API-KEY", bob)
	}
	if all := decode[[]sandboxDetail](t, w.want(200, "GET", "/v2/sandboxes", "", "X-API-KEY", bob)); len(all) != 0 {
		t.Errorf("got %d sandboxes of another key", len(all))
	}
	w.detail(id)
}

func TestConfigurationIsChecked(t *testing.T) {
	x, err := fake.New(fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureNetworkFull)}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for name, c := range map[string]Config{
		"no-key":    {},
		"empty-key": {Keys: []string{"a", ""}},
		"timeout":   {Keys: []string{"a"}, MaxTimeout: -1},
		"on-pause":  {Keys: []string{"a"}, OnPause: "freeze"},
		"paused":    {Keys: []string{"a"}, PausedTTL: -1},
		"network":   {Keys: []string{"a"}, Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}},
	} {
		if _, err := New(x, c); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestTimeouts(t *testing.T) {
	near := func(w world, id string, want time.Duration) {
		w.Helper()
		if got := time.Until(w.detail(id).EndAt); got != want {
			w.Errorf("got an end in %v, want %v", got, want)
		}
	}
	bubble(t, fake.Options{}, Config{}, func(w world) {
		id := w.create(`"timeout": 100`).SandboxID
		near(w, id, 100*time.Second)
		w.want(200, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout": 50}`)
		near(w, id, 100*time.Second) // connecting only extends
		w.want(200, "POST", "/sandboxes/"+id+"/connect", `{"timeout": 200}`)
		near(w, id, 200*time.Second)
		w.want(200, "POST", "/v2/sandboxes/"+id+"/connect", "")
		near(w, id, 300*time.Second)
		w.want(400, "POST", "/sandboxes/"+id+"/connect", `{}`)
		w.want(204, "POST", "/sandboxes/"+id+"/refreshes", `{"duration": 3600}`)
		near(w, id, time.Hour)
		w.want(400, "POST", "/sandboxes/"+id+"/refreshes", `{"duration": 3601}`)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 10}`)
		near(w, id, 10*time.Second) // setting also shortens
		w.want(204, "POST", "/sandboxes/"+id+"/refreshes", `{}`)
		near(w, id, 15*time.Second)
		for _, bad := range []string{`{"timeout": 0}`, `{"timeout": 86401}`, `{"timeout": -9223372036854775808}`, `{"timeout": "1"}`, ``} {
			w.want(400, "POST", "/sandboxes/"+id+"/timeout", bad)
		}
		time.Sleep(14 * time.Second)
		w.detail(id)
		time.Sleep(2 * time.Second)
		w.want(404, "GET", "/sandboxes/"+id, "")
		w.want(404, "POST", "/v2/sandboxes/"+id+"/connect", "")
		if n := len(w.b.Sandboxes()); n != 0 {
			t.Errorf("got %d sandboxes after the end of all", n)
		}
		// The older path has another default.
		id = decode[sandboxAnswer](t, w.want(201, "POST", "/sandboxes", `{"templateID": "base"}`)).SandboxID
		near(w, id, 15*time.Second)
	})
}

// A sandbox outlives what its session was created with if its client extends it, as far as the
// backend can.
func TestLongLife(t *testing.T) {
	bubble(t, fake.Options{}, Config{MaxTimeout: 4 * time.Hour}, func(w world) {
		id := w.create(`"timeout": 10`).SandboxID
		for range 3 {
			w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 14400}`)
			time.Sleep(4*time.Hour - time.Minute)
		}
		w.detail(id)
		if n := len(w.b.Sandboxes()); n != 1 {
			t.Errorf("got %d sandboxes, want 1", n)
		}
	})
	without := fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureKeepAlive)}
	bubble(t, without, Config{MaxTimeout: 4 * time.Hour}, func(w world) {
		id := w.create(`"timeout": 7200`).SandboxID
		time.Sleep(time.Hour)
		w.want(400, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 14400}`)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 10000}`)
		time.Sleep(10000*time.Second - 1)
		w.detail(id)
		if n := len(w.b.Sandboxes()); n != 1 {
			t.Errorf("got %d sandboxes, want 1", n)
		}
	})
}

func TestMaxLife(t *testing.T) {
	caps := fake.All()
	caps.MaxLife = time.Hour
	bubble(t, fake.Options{Capabilities: caps}, Config{}, func(w world) {
		id := w.create("").SandboxID
		time.Sleep(4 * time.Minute)
		w.want(400, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3600}`)
		w.want(204, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3300}`)
	})
}

func TestKill(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	w.want(204, "DELETE", "/sandboxes/"+id, "")
	if n := len(w.b.Sandboxes()); n != 0 {
		t.Errorf("got %d sandboxes, want none", n)
	}
	w.want(404, "DELETE", "/sandboxes/"+id, "")
	w.want(204, "DELETE", "/sandboxes/"+w.create("").SandboxID+"-client", "") // as old SDKs write it
}

func TestQuota(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxSandboxes: 2})
	first, second := w.create("").SandboxID, w.create("").SandboxID
	w.want(204, "POST", "/sandboxes/"+second+"/pause", "") // it counts like one that runs
	rec := w.want(429, "POST", "/v2/sandboxes", `{"templateID": "base"}`)
	if got := rec.Header().Get("Retry-After"); got != "" {
		t.Errorf("got Retry-After %q, want none: waiting does not help", got)
	}
	w.create("", "X-API-KEY", bob)
	w.want(204, "DELETE", "/sandboxes/"+first, "")
	w.b.Fail(fake.OpCreate, 1, fail(executor.ErrUnavailable))
	w.do("POST", "/v2/sandboxes", `{"templateID": "base"}`) // one that fails takes no place
	w.create("")
}

func TestList(t *testing.T) {
	bubble(t, fake.Options{}, Config{}, func(w world) {
		var ids []string
		for i := range 5 {
			ids = append(ids, w.create(fmt.Sprintf(`"metadata": {"n": "%d", "odd %%&=": "%v ü"}`, i, i%2 == 1)).SandboxID)
			time.Sleep(time.Second)
		}
		data := w.create(`"metadata": {"n": "x"}`)
		w.want(204, "DELETE", "/sandboxes/"+data.SandboxID, "")
		list := func(target string) (got []string, next string) {
			w.Helper()
			rec := w.want(200, "GET", target, "")
			for _, d := range decode[[]sandboxDetail](t, rec) {
				got = append(got, d.SandboxID)
			}
			return got, rec.Header().Get("X-Next-Token")
		}
		meta := url.QueryEscape(url.Values{url.QueryEscape("odd %&="): {url.QueryEscape("true ü")}}.Encode())
		newest := slices.Clone(ids)
		slices.Reverse(newest)
		for target, want := range map[string][]string{
			"/v2/sandboxes":                            newest,
			"/sandboxes":                               newest,
			"/v2/sandboxes?order=asc":                  ids,
			"/v2/sandboxes?state=paused":               nil,
			"/v2/sandboxes?state=paused,running":       newest,
			"/v2/sandboxes?template=other":             nil,
			"/v2/sandboxes?order=asc&metadata=" + meta: {ids[1], ids[3]},
			"/v2/sandboxes?metadata=n%3D9":             nil,
			"/v2/sandboxes?order=asc&startedAfter=" + url.QueryEscape(w.detail(ids[2]).StartedAt.Format(time.RFC3339Nano)): ids[3:],
		} {
			if got, _ := list(target); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", target, got, want)
			}
		}
		var pages [][]string
		for next, target := "", "/v2/sandboxes?limit=2"; ; target = "/v2/sandboxes?limit=2&nextToken=" + next {
			var page []string
			page, next = list(target)
			if pages = append(pages, page); next == "" {
				break
			}
			// What was created since does not move what follows.
			w.want(204, "DELETE", "/sandboxes/"+page[0], "")
		}
		if got := slices.Concat(pages...); !slices.Equal(got, newest) || len(pages) != 3 {
			t.Errorf("got pages %v, want %v", pages, newest)
		}
		for _, bad := range []string{"limit=0", "limit=101", "limit=x", "state=odd", "order=odd", "nextToken=%21", "startedAfter=now", "metadata=%25zz"} {
			w.want(400, "GET", "/v2/sandboxes?"+bad, "")
		}
	})
}

func TestIdempotency(t *testing.T) {
	bubble(t, fake.Options{}, Config{}, func(w world) {
		body := `{"templateID": "base"}`
		a := decode[sandboxAnswer](t, w.want(201, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k1"))
		if b := decode[sandboxAnswer](t, w.want(201, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k1")); b.SandboxID != a.SandboxID {
			t.Errorf("got another sandbox for the same key")
		}
		e := decode[apiError](t, w.want(409, "POST", "/v2/sandboxes", `{"templateID": "base", "timeout": 1}`, "Idempotency-Key", "k1"))
		if e.Code != "idempotency_request_mismatch" {
			t.Errorf("got %+v", e)
		}
		if b := decode[sandboxAnswer](t, w.want(201, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k1", "X-API-KEY", bob)); b.SandboxID == a.SandboxID {
			t.Errorf("got the sandbox of another client")
		}
		for _, bad := range []string{"", "UPPER", strings.Repeat("a", 256)} {
			w.want(400, "POST", "/v2/sandboxes", body, "Idempotency-Key", bad)
		}
		release := w.b.Hold(fake.OpCreate)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.want(201, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k2")
		}()
		synctest.Wait()
		if e := decode[apiError](t, w.want(409, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k2")); e.Code != "idempotency_in_progress" {
			t.Errorf("got %+v", e)
		}
		release()
		<-done
		time.Sleep(keepAnswers)
		if b := decode[sandboxAnswer](t, w.want(201, "POST", "/v2/sandboxes", body, "Idempotency-Key", "k1")); b.SandboxID == a.SandboxID {
			t.Errorf("got an old answer")
		}
	})
}

func TestUnsupported(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	for _, c := range []string{
		"POST /sandboxes/{id}/fork", "POST /sandboxes/{id}/snapshots", "GET /snapshots",
		"PUT /sandboxes/{id}/network", "GET /volumes", "DELETE /templates/x", "POST /v3/templates", "GET /v2/templates", "GET /teams", "GET /templates",
	} {
		method, path, _ := strings.Cut(strings.ReplaceAll(c, "{id}", id), " ")
		w.want(501, method, path, "")
	}
	w.want(404, "GET", "/nothing", "")
	w.want(404, "PATCH", "/sandboxes/"+id, "")
	w.want(204, "GET", "/health", "", "X-API-KEY", "")
	w.want(200, "GET", "/templates/aliases/base", "")
	w.want(404, "GET", "/templates/aliases/other", "")
	if got := w.want(200, "GET", "/sandboxes/"+id+"/metrics", "").Body.String(); got != "[]\n" {
		t.Errorf("got metrics %s", got)
	}
}

func TestAddresses(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Domain: "boxes.test"})
	a := w.create(`"network": {"allowPublicTraffic": false}`)
	if a.Domain == nil || *a.Domain != "boxes.test" || a.TrafficAccessToken == nil {
		t.Fatalf("got %+v", a)
	}
	host := func(port string) []string { return []string{"Host", port + "-" + a.SandboxID + ".boxes.test:3000"} }
	headers := func(port string) []string { return []string{"E2b-Sandbox-Id", a.SandboxID, "E2b-Sandbox-Port", port} }
	traffic := []string{"E2B-Traffic-Access-Token", *a.TrafficAccessToken}
	for name, c := range map[string]struct {
		status  int
		headers []string
		message string
	}{
		"host":          {204, host("49983"), ""},
		"headers":       {204, headers("49983"), ""},
		"control-plane": {204, []string{"Host", "api.boxes.test"}, ""},
		"loopback":      {204, []string{"Host", "127.0.0.1:3000"}, ""},
		"other-domain":  {421, []string{"Host", "49983-" + a.SandboxID + ".other.test"}, ""},
		"other-below":   {421, []string{"Host", "www.boxes.test"}, ""},
		"rebound":       {421, []string{"Host", "evil.test:3000", "Origin", "http://evil.test:3000", "Sec-Fetch-Site", "same-origin"}, ""},
		"gone":          {502, []string{"E2b-Sandbox-Id", "inothing", "E2b-Sandbox-Port", "49983"}, "The sandbox was not found"},
		"closed-port":   {502, append(headers("8080"), traffic...), "The sandbox is running but port is not open"},
		"private":       {403, headers("8080"), "E2B-Traffic-Access-Token"},
		"wrong-traffic": {403, append(host("8080"), "E2B-Traffic-Access-Token", "x"), "E2B-Traffic-Access-Token"},
		"half":          {400, []string{"E2b-Sandbox-Id", a.SandboxID}, "missing header"},
		"bad-port":      {400, headers("99999"), "invalid port"},
		"bad-host-port": {400, host("99999"), "invalid port"},
	} {
		if rec := w.want(c.status, "GET", "/health", "", c.headers...); !strings.Contains(rec.Body.String(), c.message) {
			t.Errorf("%s: got %s, want it to say %q", name, rec.Body, c.message)
		}
	}
	for name, token := range map[string]string{"none": "", "wrong": "x", "of-traffic": *a.TrafficAccessToken} {
		if w.want(401, "GET", "/envs", "", append(headers("49983"), "X-Access-Token", token)...); t.Failed() {
			t.Errorf("token %s got in", name)
		}
	}
	w.want(204, "DELETE", "/sandboxes/"+a.SandboxID, "")
	w.want(502, "GET", "/health", "", headers("49983")...)
}

func TestBackendFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
	}{
		"down":      {fail(executor.ErrUnavailable), 503},
		"exhausted": {fail(executor.ErrExhausted), 429},
		"denied":    {fail(executor.ErrDenied), 403},
		"auth":      {fail(executor.ErrAuth), 500},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fake.Options{}, Config{})
			w.b.Fail(fake.OpCreate, 1, c.err)
			w.want(c.status, "POST", "/v2/sandboxes", `{"templateID": "base"}`)
		})
	}
}

// A server that closes takes its sandboxes along, and answers those who come too late.
func TestClose(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.create("").SandboxID
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(w.b.Sandboxes()); n != 0 {
		t.Errorf("got %d sandboxes, want none", n)
	}
	w.want(404, "GET", "/sandboxes/"+id, "")
	w.want(503, "POST", "/v2/sandboxes", `{"templateID": "base"}`)
}

func fail(kind error) error { return driver.Fail(kind, executor.RanNo, nil) }
