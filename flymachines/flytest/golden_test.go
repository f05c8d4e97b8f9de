package flytest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// exchange sends a request as it is and returns status and body.
func (f *emulator) exchange(method, path, token, body string, headers ...string) string {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := f.client().Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if res.Header.Get("Fly-Request-Id") == "" {
		f.t.Errorf("%s %s: no request ID", method, path)
	}
	text := fmt.Sprintf("%d\n", res.StatusCode)
	if s := res.Header.Get("Retry-After"); s != "" {
		text += "Retry-After: " + s + "\n"
	}
	var indented bytes.Buffer
	if json.Indent(&indented, b, "", "  ") == nil {
		b = indented.Bytes()
	}
	return text + strings.TrimRight(string(b), "\n") + "\n"
}

func (f *emulator) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// What differs from one run to the next.
var varying = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`fm2_[0-9a-f]{48}`), "fm2_.."},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "sha256:.."},
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "ULID"},
	{regexp.MustCompile(`\b[0-9a-f]{14}\b`), "MACHINE"},
	{regexp.MustCompile(`"execbroker-test.recipe": "[0-9a-f]+"`), `"execbroker-test.recipe": "HASH"`},
	{regexp.MustCompile(`"nonce": "[0-9a-f]{12}"`), `"nonce": "NONCE"`},
	{regexp.MustCompile(`"fdaa:[0-9a-f:]+"`), `"fdaa:.."`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`), "TIME"},
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "MILLISECONDS"},
	{regexp.MustCompile(`("expires_at"): \d{10}\b`), "$1: SECONDS"},
	{regexp.MustCompile(`(?m)^( *"(pid|rss)"): \d+`), "$1: 1"},
}

// TestBodies compares bodies of the API with what is known of Fly's: the errors are Fly's, word by
// word.
func TestBodies(t *testing.T) {
	f := begin(t)
	auth := "Bearer " + f.Token()
	app := "/v1/apps/" + testApp
	machines := app + "/machines"
	cfg := func(script string, edit ...func(map[string]any)) string {
		b, err := json.Marshal(map[string]any{"name": fmt.Sprint("m", rand.Uint32()), "config": config(script, edit...)})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	running := f.machine(config(idle))
	path := machines + "/" + running.ID
	prepared := func() string {
		var m machineJSON
		f.ask(200, "POST", "/machines", map[string]any{"config": config(idle), "skip_launch": true}, &m)
		f.until(m.ID, stateStopped)
		return machines + "/" + m.ID
	}()
	do := func(method, path, body string, headers ...string) func() string {
		return func() string { return f.exchange(method, path, auth, body, headers...) }
	}
	// switched does something while a switch is on.
	switched := func(sw Switch, what func() string) func() string {
		return func() string {
			off := f.Switch(sw.Times(1))
			defer off()
			return what()
		}
	}
	in := func(region string) string { return strings.Replace(cfg(idle), "{", `{"region":"`+region+`",`, 1) }
	create := do("POST", machines, cfg(idle))

	cases := []struct {
		name string
		do   func() string
	}{
		{"token-wrong", func() string { return f.exchange("GET", app, "Bearer wrong", "") }},
		{"token-none", func() string { return f.exchange("GET", app, "", "") }},
		{"token-of-an-app", do("POST", app+"/deploy_token", `{"expiry":"48h"}`)},
		{"token-without-body", do("POST", app+"/deploy_token", "")},
		{"app-create", do("POST", "/v1/apps", `{"app_name":"another","org_slug":"personal"}`)},
		{"app-name-taken", do("POST", "/v1/apps", `{"name":"another","org_slug":"personal"}`)},
		{"app-get", do("GET", "/v1/apps/another", "")},
		{"app-list", do("GET", "/v1/apps?org_slug=personal", "")},
		{"app-delete", do("DELETE", "/v1/apps/another?force=true", "")},
		{"app-not-found", do("GET", "/v1/apps/another", "")},
		{"ip-none", do("GET", app+"/ip_assignments", "")},
		{"regions", do("GET", "/v1/platform/regions", "")},
		{"placements", do("POST", "/v1/platform/placements", `{"org_slug":"personal","region":"iad,lhr","count":2}`)},
		{"policies", do("GET", app+"/network_policies", "")},
		{"policy-without-name", do("POST", app+"/network_policies", `{"selector":{"all":true}}`)},
		{"policy-of-apps", do("POST", app+"/network_policies", `{"name":"x","selector":{"apps":["a"]}}`)},
		{"policy", do("POST", app+"/network_policies", `{"name":"x","selector":{"all":true},"rules":[]}`)},
		{"machine", do("GET", path, "")},
		{"machine-not-found", do("GET", machines+"/00000000000000", "")},
		{"machine-name-taken", func() string {
			return f.exchange("POST", machines, auth, `{"name":"`+running.Name+`","config":{"image":"`+dockertest.Trixie+`"}}`)
		}},
		{"no-candidate-host", switched(NoCandidate("lhr"), do("POST", machines, in("lhr")))},
		{"no-capacity", switched(NoCapacity("lhr"), do("POST", machines, in("lhr")))},
		{"over-quota", switched(OverQuota("lhr"), do("POST", machines, in("lhr")))},
		{"no-addresses", switched(NoAddresses("lhr"), do("POST", machines, in("lhr")))},
		{"no-capacity-for-volumes", switched(NoCapacityForVolumes(), create)},
		{"volume-host-full", switched(VolumeHostFull("vol_1"), create)},
		{"app-not-known-yet", switched(AppUnknown(), create)},
		{"start-while-replacing", func() string {
			off := f.Switch(StuckStopping())
			defer off()
			m := f.machine(config(idle))
			f.ask(200, "POST", "/machines/"+m.ID, map[string]any{"config": config(idle)}, nil)
			return f.exchange("POST", machines+"/"+m.ID+"/start", auth, "")
		}},
		{"create-times-out", switched(CreateTimesOut(), create)},
		{"host-full-cpus", switched(HostFull("CPUs"), do("POST", prepared+"/start", ""))},
		{"host-full-memory", switched(HostFull("memory"), do("POST", prepared+"/start", ""))},
		{"still-active", switched(StillActive(), do("POST", prepared+"/start", ""))},
		{"rate-limited", switched(RateLimited(0), do("GET", path, ""))},
		{"rate-limited-retry-after", switched(RateLimited(2*time.Second), do("GET", path, ""))},
		{"bad-gateway", switched(BadGateway(), do("GET", path, ""))},
		{"unavailable", switched(Unavailable(), do("POST", machines, cfg(idle)))},
		{"not-found-yet", func() string {
			off := f.Switch(NotFoundAfterCreate(1))
			defer off()
			var m machineJSON
			f.ask(200, "POST", "/machines", map[string]any{"config": config(idle), "skip_launch": true}, &m)
			return f.exchange("GET", machines+"/"+m.ID+"/wait", auth, "")
		}},
		{"start-while-created", func() string {
			off := f.Switch(SlowPull(0))
			defer off()
			var m machineJSON
			f.ask(200, "POST", "/machines", map[string]any{"config": config(idle)}, &m)
			return f.exchange("POST", machines+"/"+m.ID+"/start", auth, "")
		}},
		{"dead-host", func() string {
			revive, err := f.DeadHost(testApp, running.ID)
			if err != nil {
				t.Fatal(err)
			}
			defer revive()
			return f.exchange("GET", path, auth, "")
		}},
		{"wait-ok", do("GET", path+"/wait?state=started&timeout=5", "")},
		{"wait-range", do("GET", path+"/wait?state=started&timeout=90", "")},
		{"wait-expired", do("GET", path+"/wait?state=stopped&timeout=1", "")},
		{"wait-state", do("GET", path+"/wait?state=created", "")},
		{"exec", do("POST", path+"/exec", `{"command":["sh","-c","echo out; echo err >&2; exit 3"],"timeout":30}`)},
		{"exec-stdin-is-lost", do("POST", path+"/exec", `{"command":["cat"],"stdin":"x","timeout":30}`)},
		{"exec-timeout-range", do("POST", path+"/exec", `{"command":["true"],"timeout":61}`)},
		{"exec-expired", do("POST", path+"/exec", `{"command":["sleep","1000"],"timeout":1}`)},
		{"exec-oversized", do("POST", path+"/exec", `{"command":["true"],"stdin":"`+strings.Repeat("x", 17<<10)+`"}`)},
		{"exec-not-running", do("POST", prepared+"/exec", `{"command":["true"]}`)},
		{"signal-by-number", do("POST", path+"/signal", `{"signal":18}`)},
		{"signal-by-name", do("POST", path+"/signal", `{"signal":"SIGUSR3"}`)},
		{"lease", do("POST", path+"/lease?ttl=30", "")},
		{"lease-get", do("GET", path+"/lease", "")},
		{"lease-held", do("POST", path+"/lease", `{"ttl":30,"description":"x"}`)},
		{"lease-held-stop", do("POST", path+"/stop", `{"signal":"SIGTERM","timeout":"30s"}`)},
		{"lease-release", func() string {
			f.mu.Lock()
			nonce := f.apps[testApp].machines[running.ID].lease.nonce
			f.mu.Unlock()
			return f.exchange("DELETE", path+"/lease", auth, "", leaseHeader, nonce)
		}},
		{"lease-none", do("GET", path+"/lease", "")},
		{"metadata-set", do("POST", path+"/metadata/k", `{"value":"v"}`)},
		{"metadata-merge", do("PATCH", path+"/metadata", `{"metadata":{"a":"b","gone":null},"machine_version":"`+running.InstanceID+`"}`)},
		{"metadata-lost-race", do("PATCH", path+"/metadata", `{"metadata":{"a":"c"},"machine_version":"01AAAAAAAAAAAAAAAAAAAAAAAA"}`)},
		{"metadata-get", do("GET", path+"/metadata", "")},
		{"metadata-delete", do("DELETE", path+"/metadata/k", "")},
		{"update-concurrent", do("POST", path, `{"config":{"image":"`+dockertest.Trixie+`"},"current_version":"01AAAAAAAAAAAAAAAAAAAAAAAA"}`)},
		{"cordon", do("POST", path+"/cordon", "")},
		{"destroy-without-force", do("DELETE", path, "")},
		{"start", do("POST", path+"/start", "")},
		{"stop", do("POST", path+"/stop", `{"id":"`+running.ID+`","timeout":"1s"}`)},
		{"exit-event", func() string {
			f.until(running.ID, stateStopped)
			var e []event
			f.ask(200, "GET", "/machines/"+running.ID+"/events?limit=50", nil, &e)
			i := slices.IndexFunc(e, func(e event) bool { return e.Type == "exit" })
			b, err := json.MarshalIndent(e[i], "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			return string(b) + "\n"
		}},
		{"destroy", do("DELETE", path+"?kill=true", "")},
		{"destroyed", func() string {
			f.until(running.ID, stateDestroyed)
			return f.exchange("GET", path+"/wait?state=stopped", auth, "")
		}},
		{"bad-json", do("POST", machines, `{"config":`)},
		{"unknown-field", do("POST", machines, `{"config":{"image":"x","mount":[]}}`)},
		{"unsupported-field", do("POST", machines, `{"config":{"image":"x","mounts":[{"volume":"v","path":"/data"}]}}`)},
		{"image-missing", do("POST", machines, `{"config":{"image":"nobody/nothing:1"}}`)},
		{"guest-size", do("POST", machines, `{"config":{"image":"x","guest":{"cpu_kind":"shared","cpus":3}}}`)},
		{"guest-memory", do("POST", machines, `{"config":{"image":"x","guest":{"cpu_kind":"performance","cpus":1,"memory_mb":512}}}`)},
		{"no-such-path", do("GET", app+"/certificates", "")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := strings.ReplaceAll(c.do(), running.Name, "NAME")
			for _, v := range varying {
				got = v.re.ReplaceAllString(got, v.to)
			}
			golden(t, c.name, got)
		})
	}
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "bodies", name+".txt")
	if *updateGolden {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
