package flymachines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

func TestGuest(t *testing.T) {
	t.Parallel()
	const mb = int64(mib)
	for name, c := range map[string]struct {
		cfg     Config
		ask     executor.Limits
		want    string // kind, CPUs, memory; "": refused
		missing int
	}{
		"default":         {want: "shared 2 512"},
		"small":           {cfg: Config{Guest: Guest{CPUs: 1, MemoryMB: 256}}, want: "shared 1 256"},
		"memory":          {ask: executor.Limits{MemoryBytes: 256 * mb}, want: "shared 2 512"},
		"memory-rounded":  {cfg: Config{Guest: Guest{CPUs: 1}}, ask: executor.Limits{MemoryBytes: 1000 * mb}, want: "shared 1 1280"},
		"memory-for-cpus": {ask: executor.Limits{CPUs: 2.5}, want: "shared 4 1024"},
		"cpus-for-memory": {ask: executor.Limits{MemoryBytes: 5000 * mb}, want: "shared 4 5120"},
		"performance":     {cfg: Config{Guest: Guest{Kind: "performance", CPUs: 1}}, want: "performance 1 2048"},
		"too-many-cpus":   {ask: executor.Limits{CPUs: 17}},
		"too-much-memory": {ask: executor.Limits{MemoryBytes: 1 << 62}},
	} {
		t.Run(name, func(t *testing.T) {
			g, l, err := c.cfg.guest(&executor.Spec{Limits: c.ask})
			if c.want == "" {
				var e *executor.Error
				if !errors.As(err, &e) || !errors.Is(err, executor.ErrUnsupported) || len(e.Missing) == 0 {
					t.Errorf("got %v", err)
				}
				return
			}
			if got := fmt.Sprint(g.CPUKind, " ", g.CPUs, " ", g.MemoryMB); err != nil || got != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
			if l.CPUs != float64(g.CPUs) || l.MemoryBytes != int64(g.MemoryMB)*mb || l.MemoryBytes < c.ask.MemoryBytes || l.Processes == 0 {
				t.Errorf("got limits %+v", l)
			}
		})
	}
}

// The bodies are those that Fly is known to send.
func TestClassify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   class
		scope  Scope
		kind   error
	}{
		{422, `{"error":"could not find a candidate host","status":"insufficient_capacity"}`, classCapacity, ScopeRegion, executor.ErrExhausted},
		{409, `{"error":"aborted: could not reserve resource for machine: insufficient CPUs available to fulfill request on the current host"}`, classCapacity, ScopeHost, executor.ErrExhausted},
		{409, `{"error":"aborted: insufficient resources available to fulfill request"}`, classCapacity, ScopeRegion, executor.ErrExhausted},
		{409, `{"error":"aborted: no capacity"}`, classCapacity, ScopeRegion, executor.ErrExhausted},
		{412, `{"error":"insufficient resources to create new machine with existing volume id 'vol_1'"}`, classCapacity, ScopeHost, executor.ErrExhausted},
		{400, `{"error":"no capacity"}`, classCapacity, ScopeRegion, executor.ErrExhausted},
		{403, `{"error":"organization \"x\" is using 4096 MB of memory in fra which is over the allowed quota"}`, classCapacity, ScopeQuota, executor.ErrExhausted},
		{403, `{"error":"organization \"x\" has reached its limit of 50 machines"}`, classCapacity, ScopeQuota, executor.ErrExhausted},
		{409, `{"error":"already_exists: unique machine name violation, machine ID 148e21ea7d9389 already exists with name \"n\""}`, classTaken, "", executor.ErrInternal},
		{409, `{"status":"error","message":"machine ID 148e21ea7d9389 lease currently held by x, expires at y","code":"invalid"}`, classNotYet, "", executor.ErrUnavailable},
		{412, `{"error":"failed_precondition: machine still active, refusing to start"}`, classNotYet, "", executor.ErrUnavailable},
		{408, `{"error":"deadline_exceeded: machine failed to reach desired state, started, currently stopped"}`, classLost, "", executor.ErrUnavailable},
		{404, `{"error":"app not found"}`, classMissing, "", executor.ErrUnavailable},
		{500, `{"error":"internal: failed to get app: sql: no rows in result set"}`, classLost, "", executor.ErrUnavailable},
		{429, `rate limit exceeded`, classRate, ScopeRate, executor.ErrExhausted},
		{503, `{"error":"unavailable: deploys to this host are temporarily disabled"}`, classLost, "", executor.ErrUnavailable},
		{502, "<html>\x1b[2J</html>", classLost, "", executor.ErrUnavailable},
		{401, `{"error":"Authenticate: token validation error"}`, classAuth, "", executor.ErrAuth},
		{403, `{"error":"unauthorized"}`, classAuth, "", executor.ErrAuth},
		{400, `{"error":"EOF"}`, classInvalid, "", executor.ErrInvalid},
		{400, ``, classInvalid, "", executor.ErrInvalid},
		{402, `{"error":"a payment method is needed"}`, classInvalid, "", executor.ErrInvalid},
		{413, `request entity too large`, classInvalid, "", executor.ErrInvalid},
		{422, `{"error":"invalid_argument: region \"xyz\" not found"}`, classInvalid, "", executor.ErrInvalid},
	} {
		e := classify("create", &attempt{status: c.status, body: []byte(c.body), requestID: "01J-yyz"})
		if e.class != c.want || e.Scope != c.scope || !errors.Is(fail(t.Context(), e), c.kind) {
			t.Errorf("%d %s: got class %d, scope %q, %v", c.status, c.body, e.class, e.Scope, fail(t.Context(), e))
		}
		if text := e.Error(); !strings.Contains(text, "01J-yyz") || strings.ContainsRune(text, 0x1b) {
			t.Errorf("got %q", text)
		}
		if c.want == classTaken && e.id != "148e21ea7d9389" {
			t.Errorf("got the ID %q", e.id)
		}
	}
}

// Beyond the first call an answer is about a Machine that was there.
func TestClassifyOfMachine(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{404: executor.ErrNotFound, 400: executor.ErrInternal, 422: executor.ErrInternal} {
		if err := fail(t.Context(), classify(actionGet, &attempt{status: status})); !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", status, err, want)
		}
	}
}

// opened returns a backend whose API is at an address, and a session to create in it.
func opened(t *testing.T, at string) (*backend, *runner.Start) {
	t.Helper()
	t.Setenv("FLY_TEST_TOKEN", "fm2_secret")
	b, err := newBackend(t.Context(), driver.Env{Owner: "owner", CacheDir: t.TempDir()}.WithInstance(), Config{
		App: "app", Image: "registry.example/an/image", Token: driver.Secret{Env: "FLY_TEST_TOKEN"}, API: at, Rate: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, &runner.Start{Create: &driver.Create{ID: "id", Spec: executor.Spec{Languages: []executor.Language{executor.Python}}}}
}

// What Fly says instead of making a Machine.
func TestCreateIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		body       string
		want       error
		says       string
		requests   int64
	}{
		"busy-for-long": {429, "30", "rate limit exceeded", executor.ErrExhausted, "rate limit exceeded", 1},
		"bad-image":     {400, "", `{"error":"failed to get manifest registry.example/an/image"}`, executor.ErrInvalid, "failed to get manifest registry.example/an/image", 1},
		"too-large":     {413, "", "too large", executor.ErrInvalid, "too large", 2}, // with the runner, and without
		"quota":         {403, "", `{"error":"you have reached the limit of machines"}`, executor.ErrExhausted, "limit of machines", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost { // the others are of the sweep
					requests.Add(1)
				}
				w.Header().Set("Retry-After", c.retryAfter)
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer srv.Close()
			b, create := opened(t, srv.URL)
			_, _, err := b.Start(t.Context(), create)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || requests.Load() != c.requests {
				t.Errorf("got %v after %d requests", err, requests.Load())
			}
			if e := (*executor.Error)(nil); c.retryAfter != "" && (!errors.As(err, &e) || e.RetryAfter != 30*time.Second) {
				t.Errorf("got %+v, want when to come back", err)
			}
		})
	}
}

// A deadline that ends the attempts keeps what Fly said.
func TestDeadlineKeepsTheLastFact(t *testing.T) {
	asked := make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		io.WriteString(w, "rate limit exceeded")
		asked <- struct{}{}
	}))
	defer srv.Close()
	b, create := opened(t, srv.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-asked; <-asked; cancel(context.DeadlineExceeded) }() // the second time the first answer is known
	_, err := b.make(ctx, fly.LaunchMachineInput{Config: &fly.MachineConfig{}}, create.ID)
	if err = fail(ctx, err); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rate limit exceeded") {
		t.Errorf("got %v, want the deadline and what Fly said", err)
	}
}

// An API that is down is not searched for what was never sent.
func TestUnsent(t *testing.T) {
	srv := httptest.NewServer(nil)
	at := srv.URL
	srv.Close()
	b, create := opened(t, at)
	_, _, err := b.Start(t.Context(), create)
	var e *APIError
	if !errors.Is(err, executor.ErrUnavailable) || !errors.As(err, &e) || e.class != classUnsent || e.Action != actionCreate {
		t.Errorf("got %v, want that there was no connection", err)
	}
	if !refused(err) {
		t.Errorf("%v is searched for", err)
	}
}

// A Machine in another private network is given up before the time of a create is over.
func TestAnotherNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := opened(t, "http://127.0.0.1:1")
		b.addresses = func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.ParseIP("fdaa:0:19:a7b::3"), Mask: net.CIDRMask(112, 128)}}, nil
		}
		b.data.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
		}
		m := &fly.Machine{ID: "148e21ea7d9389", PrivateIP: "fdaa:0:18:a7b::2"}
		e := b.endpoint(m, "secret", 80)
		e.Gone = func(context.Context) error { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), createTimeout)
		defer cancel()
		err := b.ready(ctx, m, e)
		if !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), "in the private network fdaa:0:19::/48, and the app app in fdaa:0:18::/48") || ctx.Err() != nil {
			t.Errorf("got %v", err)
		}
	})
}

// A way to the Machine that is not there ends at once, with advice that fits the configuration.
func TestUnreached(t *testing.T) {
	for proxy, want := range map[string]string{"": "private network of the app", "http://127.0.0.1:1": "proxy has to lead to the app"} {
		b, _ := opened(t, "http://127.0.0.1:1")
		b.cfg.Proxy = proxy
		dialed := 0
		b.data.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dialed++
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
		}
		m := &fly.Machine{ID: "148e21ea7d9389", PrivateIP: "fdaa::2"}
		err := b.ready(t.Context(), m, b.endpoint(m, "secret", 80))
		if !errors.Is(err, executor.ErrUnavailable) || !strings.Contains(err.Error(), want) || dialed != 1 {
			t.Errorf("got %v after %d dials, want %s", err, dialed, want)
		}
	}
}

// What fly-go repeats is sent once, to the configured address, with the token, whatever the
// environment says.
func TestTransport(t *testing.T) {
	var requests atomic.Int64
	status, answer := http.StatusBadGateway, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if got := r.Header.Get("Authorization"); got != "FlyV1 fm2_secret" || r.Header.Get("Fly-Force-Instance-Id") != "" || !strings.HasPrefix(r.URL.Path, "/prefix/v1/apps/") {
			t.Errorf("got %s with %q", r.URL.Path, got)
		}
		w.Header().Set("Fly-Request-Id", "01J-yyz")
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer srv.Close()
	t.Setenv("FLY_FLAPS_BASE_URL", "http://192.0.2.1")
	t.Setenv("FLY_FORCE_INSTANCE_ID", "another")
	t.Setenv("FLY_TEST_TOKEN", "fm2_secret")
	a, err := newAPI(t.Context(), driver.Env{CacheDir: t.TempDir()}, &Config{App: "app", API: srv.URL + "/prefix", Token: driver.Secret{Env: "FLY_TEST_TOKEN"}, Rate: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	launch := func() error {
		return a.call(t.Context(), actionCreate, "app", time.Minute, func(ctx context.Context) error {
			_, err := a.flaps.Launch(ctx, "app", fly.LaunchMachineInput{Name: "n", Config: &fly.MachineConfig{}})
			return err
		})
	}
	for _, status = range []int{502, 503, 429, 409, 500} {
		requests.Store(0)
		err := launch()
		var e *APIError
		if !errors.As(err, &e) || e.Status != status || e.RequestID != "01J-yyz" || requests.Load() != 1 {
			t.Errorf("%d: got %v after %d requests", status, err, requests.Load())
		}
		if strings.Contains(fmt.Sprintf("%+v %#v", err, err), "secret") {
			t.Errorf("got %v with the token", err)
		}
	}
	// What fly-go cannot decode.
	status = 200
	for _, answer = range []string{
		`{"id":"1","events":[{"type":"exit","request":{"exit_event":{"exit_code":1,"exited_at":1700000000000}}}]}`,
		`{"id":"1","config":{"guest":{"persist_rootfs":"sometimes"}}}`,
		``,
	} {
		if m, err := a.get(t.Context(), "1"); err != nil || answer != "" && m.ID != "1" {
			t.Errorf("%s: got %+v, %v", answer, m, err)
		}
	}
	srv.CloseClientConnections()
	srv.Close()
	a.http.CloseIdleConnections() // so that it has to connect anew
	var e *APIError
	if err := launch(); !errors.As(err, &e) || e.Status != 0 || e.class != classUnsent {
		t.Errorf("got %v of a server that is down", err)
	}
	t.Setenv("FLY_TEST_TOKEN", "")
	if err := launch(); !errors.As(err, &e) || e.class != classAuth {
		t.Errorf("got %v without a token", err)
	}
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ratesOf(driver.Env{CacheDir: t.TempDir()}, "http://127.0.0.1:2", "app", 0)
		begin := time.Now()
		for range 10 {
			if err := r.wait(t.Context(), actionCreate, "app"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 7*time.Second { // three at once
			t.Errorf("ten creates took %v", took)
		}
		begin = time.Now()
		for range 15 {
			if err := r.wait(t.Context(), actionGet, "id"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("fifteen gets took %v", took)
		}
	})
}

// Programs with one cache directory have the rates of an app in common, those of other apps do not,
// and a 429 holds up all of them. Without a directory each has its own.
func TestRatesAreShared(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir    string
		shared bool
	}{"directory": {t.TempDir(), true}, "none": {filepath.Join(file, "below"), false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := driver.Env{CacheDir: c.dir}
				const at = "http://127.0.0.1:2"
				one, other, apart := ratesOf(env, at, "app", 0), ratesOf(env, at, "app", 0), ratesOf(env, at, "another", 0)
				begin, put := time.Now(), 0
				for n, r := range []*rates{one, other, one, apart, other} {
					if err := r.wait(t.Context(), actionCreate, r.app); err != nil {
						t.Fatal(err)
					}
					if c.shared && n == 4 { // the fourth of one app
						put = 1
					}
					if took, want := time.Since(begin), time.Duration(put)*time.Second; took != want {
						t.Errorf("create %d: waited %v, want %v", n, took, want)
					}
				}
				time.Sleep(time.Minute)
				one.refused(t.Context(), actionCreate, "app")
				begin = time.Now()
				err := other.wait(t.Context(), actionCreate, "app")
				if waited := time.Since(begin) >= time.Second; err != nil || waited != c.shared {
					t.Errorf("after a 429: waited %v, %v", time.Since(begin), err)
				}
			})
		})
	}
}

// Another process has what this one has written, and the file has nothing that is over.
func TestRatesOfProcesses(t *testing.T) {
	const name = "FLYMACHINES_TEST_RATES"
	call := func(dir string) {
		if err := ratesOf(driver.Env{CacheDir: dir}, "http://127.0.0.1:2", "app", 0).wait(t.Context(), actionCreate, "app"); err != nil {
			t.Fatal(err)
		}
	}
	if dir := os.Getenv(name); dir != "" {
		call(dir)
		return
	}
	dir := t.TempDir()
	begin := time.Now()
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRatesOfProcesses$")
		cmd.Env = append(os.Environ(), name+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	other := time.Since(begin)
	call(dir)
	if took := time.Since(begin); took < time.Second {
		t.Errorf("four calls took %v, of which three of another process %v", took, other)
	}
	file := filepath.Join(dir, Type, ratesFile)
	old := `{"http://127.0.0.1:3 gone create":"2000-01-01T00:00:00Z","http://127.0.0.1:2 app create":"2400-01-01T00:00:00Z"}`
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	call(dir) // a clock that was set back keeps nobody waiting
	got, err := os.ReadFile(file)
	if took := time.Since(begin); err != nil || took > time.Minute || strings.Contains(string(got), "gone") {
		t.Errorf("got %s, %v after %v", got, err, took)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const good = `{"app":"sandboxes","token":{"env":"FLY_API_TOKEN"}`
	for settings, want := range map[string]string{
		good + `}`:                            "",
		`{}`:                                  "app: want the name of an app: letters, digits and hyphens\ntoken: is needed: {env: FLY_API_TOKEN}; fly tokens create deploy makes one",
		good + `,"tokn":1}`:                   `unknown field "tokn"; did you mean "token"?`,
		good + `,"api":"http://api.example"}`: "api: http would show the token to everybody on the way; use https",
		good + `,"api":"http://_api.internal:4280"}`:          "",
		good + `,"proxy":"https://x.flycast"}`:                "proxy: Flycast has no certificates; use http, which the private network encrypts",
		good + `,"proxy":"http://x.flycast"}`:                 "",
		good + `,"proxy":"ftp://x.fly.dev"}`:                  `proxy: unknown scheme "ftp"; did you mean "http"?`,
		good + `,"image":"python"}`:                           `image: "python" has no registry; write "docker.io/library/python" if that is meant`,
		good + `,"guest":{"cpus":3}}`:                         "guest.cpus: Fly has [1 2 4 8 16]",
		good + `,"guest":{"kind":"fast"}}`:                    `guest.kind: unknown kind "fast"; there are performance, shared`,
		good + `,"regions":["Frankfurt"]}`:                    "regions[0]: want a region such as fra, or any, not \"Frankfurt\"",
		good + `,"machine":{"imag":"x"}}`:                     `machine: unknown field "imag"; did you mean "image"?`,
		good + `,"machine":{"auto_destroy":false}}`:           "machine.auto_destroy: is the adapter's: a session is one process that ends with its Machine",
		good + `,"machine":{"image":"x"}}`:                    "machine.image: is set by image beside machine",
		good + `,"machine":{"metadata":{"execbroker_id":1}}}`: "machine.metadata.execbroker_id: want a string, got a number",
		good + `,"languages":["ruby"]}`:                       `languages[0]: unknown language "ruby"; there are javascript, python`,
		good + `,"packages":{"allow":{"python":["six","*"]},"index_url":"https://index.example.org/simple","size":"1GiB"}}`: "",
		good + `,"packages":{"allow":{"python":["./x"],"javascript":["ms"]},"wheels":"here","size":-1}}`: "packages: there are some of javascript, which is not one of the languages\n" +
			"packages.allow.python[0]: requirement \"./x\": addresses and files are not accepted; name packages of the configured index only\npackages.wheels: not an absolute path\npackages.size: negative",
		good + `,"machine":{"files":[{"guest_path":"/a","raw_value":"` + strings.Repeat("QUFB", 7<<10) + `"}]}}`:                     "",
		good + `,"runner":"image","machine":{"files":[{"guest_path":"/a","raw_value":"` + strings.Repeat("QUFB", 16<<10+1) + `"}]}}`: "machine.files: 65540 bytes in base64 are more than 65536: put them into the image",
		good + `,"runner":"disk"}`: `runner: unknown way "disk"; there are files, image`,
	} {
		got := ""
		if err := Factory().Check([]byte(settings)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.1000s:\ngot  %s\nwant %s", settings, got, want)
		}
	}
}

// Whatever a handle holds, nothing but the API says which Machine it is.
func FuzzHandleState(f *testing.F) {
	f.Add(`{"m":"148e21ea7d9389"}`, "aaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add(`{"m":"../../x"}`, "../")
	var path atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path.Store(r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}))
	f.Cleanup(srv.Close)
	f.Setenv("FLY_TEST_TOKEN", "x")
	b, err := newBackend(f.Context(), driver.Env{Owner: "o", CacheDir: f.TempDir()}, Config{App: "app", API: srv.URL, Token: driver.Secret{Env: "FLY_TEST_TOKEN"}, Rate: 1e9})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { b.Close() })
	f.Fuzz(func(t *testing.T, state, session string) {
		path.Store("")
		if _, _, err := b.Find(t.Context(), executor.Handle{Session: session, State: []byte(state)}); !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if p := path.Load().(string); p != "" && !strings.HasPrefix(p, "/v1/apps/app/machines") || strings.Contains(p, "..") {
			t.Errorf("asked for %s", p)
		}
	})
}
