package flytest

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// A Machine has what its configuration says, from its creation to its end.
func TestMachine(t *testing.T) {
	t.Parallel()
	f := begin(t)
	content := base64.StdEncoding.EncodeToString([]byte("hello\n"))
	cfg := config(`echo "$GREETING $FLY_APP_NAME $(cat /run/x/greeting) $(stat -c %a:%u /run/x/greeting) $(test -e /.fly/api && echo api)"; exec python3 -m http.server 8080 --bind ::`,
		with("env", map[string]string{"GREETING": "hi"}),
		with("files", []map[string]any{{"guest_path": "/run/x/greeting", "raw_value": content, "mode": 256}}),
		with("guest", map[string]any{"cpu_kind": "shared", "cpus": 2, "memory_mb": 512}),
		with("metadata", map[string]string{"owner": "me"}),
		with("services", []map[string]any{{"protocol": "tcp", "internal_port": 8080}}),
		with("auto_destroy", true),
	)
	m := f.machine(cfg)
	f.logs(m.ID, "hi "+testApp+" hello 400:0 api")
	if m.State != stateStarted || m.HostStatus != "ok" || len(m.ID) != 14 || len(m.InstanceID) != 26 || m.Region != "iad" {
		t.Errorf("got %+v", m)
	}
	i := f.container(m.ID).Container
	if r := i.HostConfig.Resources; r.Memory != 512<<20 || r.MemorySwap != r.Memory || r.NanoCPUs < 1e9 {
		t.Errorf("got limits %+v", r)
	}

	// Three ways lead to its port.
	published, err := f.Published(t.Context(), testApp, m.ID, 8080)
	if err != nil {
		t.Fatal(err)
	}
	direct := &http.Client{Transport: &http.Transport{DialContext: f.DialContext, DisableKeepAlives: true}}
	for _, c := range []struct {
		name, url string
		client    *http.Client
	}{
		{"address", "http://[" + m.PrivateIP + "]:8080/run/x/", direct},
		{"name", "http://" + m.ID + ".vm." + testApp + ".internal:8080/run/x/", direct},
		{"published", "http://" + published + "/run/x/", &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}},
	} {
		f.fetch(c.client, c.name, c.url, "greeting")
	}

	var list []machineJSON
	f.ask(200, "GET", "/machines?metadata.owner=me", nil, &list)
	if len(list) != 1 || list[0].ID != m.ID {
		t.Errorf("got list %+v", list)
	}
	f.ask(200, "GET", "/machines?metadata.owner=you", nil, &list)
	if len(list) != 0 {
		t.Errorf("got list %+v", list)
	}
	f.ask(200, "DELETE", "/machines/"+m.ID+"?force=true", nil, nil)
	f.until(m.ID, stateDestroyed)
	if got := f.see(m.ID); got.State != stateDestroyed {
		t.Errorf("got state %s", got.State)
	}
	f.ask(200, "GET", "/machines", nil, &list)
	if len(list) != 0 {
		t.Errorf("got list %+v", list)
	}
}

// fetch polls a page of a Machine, whose server may not listen yet, until it contains want.
func (f *emulator) fetch(c *http.Client, name, url, want string) {
	f.t.Helper()
	for {
		r, err := http.NewRequestWithContext(f.t.Context(), "GET", url, nil)
		if err != nil {
			f.t.Fatal(err)
		}
		res, err := c.Do(r)
		if f.t.Context().Err() != nil {
			f.t.Fatalf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil && strings.Contains(string(b), want) {
			return
		}
	}
}

// A Machine that ends by itself goes if it has auto_destroy and no restart policy.
func TestAutoDestroy(t *testing.T) {
	t.Parallel()
	f := begin(t)
	var m machineJSON
	f.ask(200, "POST", "/machines", map[string]any{"config": config("exit 3", with("auto_destroy", true))}, &m)
	f.until(m.ID, stateDestroyed)
	got := f.see(m.ID)
	i := slices.IndexFunc(got.Events, func(e event) bool { return e.Type == "exit" })
	if i < 0 || got.Events[i].Request.ExitEvent.GuestExitCode != 3 || got.Events[i].Status != stateStopped {
		t.Errorf("got events %+v", got.Events)
	}
}

// Who is root in a Machine may do there what root of a virtual machine may.
func TestRightsOfRoot(t *testing.T) {
	t.Parallel()
	f := begin(t)
	m := f.machine(config(idle))
	for name, script := range map[string]string{
		"uid":       "test $(id -u) = 0",
		"network":   "unshare --net sh -c 'ip link set lo up 2>/dev/null || python3 -c \"import os\"'",
		"mount":     "mkdir -p /mnt/x && mount -t tmpfs none /mnt/x && umount /mnt/x",
		"hide":      "unshare --mount sh -c 'mount -t tmpfs none /.fly && ! test -e /.fly/api' && test -e /.fly/api",
		"other-uid": "python3 -c 'import os; os.setgroups([]); os.setgid(1234); os.setuid(1234); assert os.getuid() == 1234'",
		"hosts":     "grep -q fly-local-6pn /etc/hosts",
		"ipv6":      `python3 -c 'import socket; socket.socket(socket.AF_INET6).bind(("fly-local-6pn", 8080))'`,
	} {
		var out execAnswer
		f.ask(200, "POST", "/machines/"+m.ID+"/exec", map[string]any{"command": []string{"sh", "-ec", script}}, &out)
		if out.ExitCode != 0 {
			t.Errorf("%s: got %+v", name, out)
		}
	}
}

// The restart policy decides what follows the end of a program, unless somebody has asked for the
// end.
func TestRestartPolicy(t *testing.T) {
	t.Parallel()
	f := begin(t)
	policy := func(name string, retries int) func(map[string]any) {
		return with("restart", map[string]any{"policy": name, "max_retries": retries})
	}
	var m machineJSON
	f.ask(200, "POST", "/machines", map[string]any{"config": config("exit 1", policy("on-failure", 2))}, &m)
	exits := 0
	f.until(m.ID, stateStopped)
	for _, e := range f.see(m.ID).Events {
		if e.Type == "exit" {
			exits++
			if last := exits == 1; e.Request.ExitEvent.Restarting == last || e.Request.RestartCount != 3-exits {
				t.Errorf("exit %d from the end: got %+v %+v", exits, e.Request, e.Request.ExitEvent)
			}
		}
	}
	if exits != 3 {
		t.Errorf("on-failure: got %d exits, want 3", exits)
	}
	f.ask(200, "POST", "/machines", map[string]any{"config": config("exit 0", policy("on-failure", 2))}, &m)
	if e := f.exitOf(m.ID); e.Restarting {
		t.Errorf("on-failure, without one: got %+v", e)
	}
	m = f.machine(config("sleep 0.2; exit 0", policy("always", 0)))
	for len(slices.DeleteFunc(f.see(m.ID).Events, func(e event) bool { return e.Type != "exit" })) < 2 {
		if t.Context().Err() != nil {
			t.Fatal("always: not restarted")
		}
	}
	f.ask(200, "POST", "/machines/"+m.ID+"/stop", nil, nil)
	f.until(m.ID, stateStopped)
	// What a Machine has written goes with its end.
	m = f.machine(config("test -e /seen && exit 9; touch /seen; "+idle, policy("no", 0)))
	f.ask(200, "POST", "/machines/"+m.ID+"/restart", nil, nil)
	f.until(m.ID, stateStarted)
	f.ask(200, "GET", "/machines/"+m.ID+"/events", nil, nil)
	if got := f.see(m.ID); got.State != stateStarted || len(got.Events) > keptEvents {
		t.Errorf("restarted: got %+v", got)
	}
	for range 8 { // more than can be kept
		f.ask(200, "POST", "/machines/"+m.ID+"/suspend", nil, nil)
		f.until(m.ID, stateSuspended)
		f.ask(200, "POST", "/machines/"+m.ID+"/start", nil, nil)
		f.until(m.ID, stateStarted)
	}
	if n := len(f.see(m.ID).Events); n != keptEvents {
		t.Errorf("got %d events, want %d", n, keptEvents)
	}
	f.ask(200, "POST", "/machines/"+m.ID+"/suspend", nil, nil)
	f.until(m.ID, stateSuspended)
	f.ask(200, "DELETE", "/machines/"+m.ID+"?force=true", nil, nil)
	f.until(m.ID, stateDestroyed)
}

// What a Machine held while it was suspended is there when it is started, unless it is lost: then
// it begins anew.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	f := begin(t)
	m := f.machine(config("test -e /seen && exit 9; touch /seen; " + idle))
	wake := func() string {
		f.ask(200, "POST", "/machines/"+m.ID+"/suspend", nil, nil)
		f.until(m.ID, stateSuspended)
		before := f.find(m.ID + ".vm." + testApp + ".internal").container
		f.ask(200, "POST", "/machines/"+m.ID+"/start", nil, nil)
		f.until(m.ID, stateStarted)
		if f.find(m.ID+".vm."+testApp+".internal").container == before {
			return "resumed"
		}
		return "booted"
	}
	if got := wake(); got != "resumed" {
		t.Errorf("got %s", got)
	}
	off := f.Switch(SnapshotLost().Of(m.ID))
	if got := wake(); got != "booted" {
		t.Errorf("lost: got %s", got)
	}
	off()
	if got := wake(); got != "resumed" {
		t.Errorf("when it is off: got %s", got)
	}
}

// between starts an emulator with something between it and its engine.
func between(t *testing.T, middle func(w http.ResponseWriter, r *http.Request, engine http.Handler)) *emulator {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		t.Fatalf("%s: want a Unix socket", host)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	engine := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { middle(w, r, engine) }))
	t.Cleanup(s.Close)
	return begin(t, func(c *Config) { c.Engine = "tcp://" + s.Listener.Addr().String() })
}

// An engine may be behind with what it knows of a container: it then refuses what it would do a
// moment later.
func TestEngineIsBehind(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	refused := map[string]int{}
	f := between(t, func(w http.ResponseWriter, r *http.Request, engine http.Handler) {
		what := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		if r.Method == http.MethodDelete {
			what = "remove"
		}
		mu.Lock()
		refuse := slices.Contains([]string{"pause", "unpause", "kill", "remove"}, what) && refused[what] < 2
		if refuse {
			refused[what]++
		}
		mu.Unlock()
		if refuse {
			http.Error(w, `{"message":"the container is in another state"}`, http.StatusConflict)
			return
		}
		engine.ServeHTTP(w, r)
	})
	m := f.machine(config(idle))
	f.ask(200, "POST", "/machines/"+m.ID+"/suspend", nil, nil)
	f.until(m.ID, stateSuspended)
	f.ask(200, "POST", "/machines/"+m.ID+"/start", nil, nil)
	f.until(m.ID, stateStarted)
	f.ask(200, "POST", "/machines/"+m.ID+"/stop", map[string]any{"signal": "SIGKILL", "timeout": "5m"}, nil)
	f.until(m.ID, stateStopped)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := map[string]int{"pause": 2, "unpause": 2, "kill": 2, "remove": 2}; !maps.Equal(refused, want) {
		t.Errorf("got refused %v, want %v", refused, want)
	}
}

// What an engine makes or removes while the emulator is closed is gone when that has ended. The
// engine goes on with it though its client may have left.
func TestClosedMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		is   func(r *http.Request) bool
		do   func(f *emulator)
	}{
		{"making", func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/containers/create") }, func(f *emulator) {
			f.ask(200, "POST", "/machines", map[string]any{"config": config(idle)}, nil)
		}},
		{"removing", func(r *http.Request) bool { return r.Method == http.MethodDelete }, func(f *emulator) {
			f.ask(200, "DELETE", "/machines/"+f.machine(config(idle)).ID+"?force=true", nil, nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, closing, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var armed atomic.Bool // for one request, after those of the start
			f := between(t, func(w http.ResponseWriter, r *http.Request, engine http.Handler) {
				if !c.is(r) || !armed.CompareAndSwap(true, false) {
					engine.ServeHTTP(w, r)
					return
				}
				defer close(done)
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				close(asked)
				<-closing
				ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // one without an end ends with the connection, too
				defer cancel()
				engine.ServeHTTP(w, r.WithContext(ctx))
			})
			armed.Store(true)
			c.do(f)
			<-asked
			defer context.AfterFunc(f.life, func() { close(closing) })()
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			<-done
			host, err := dockertest.Host()
			if err != nil {
				t.Fatal(err)
			}
			left, err := dockertest.Containers(t.Context(), host, f.engine.Filter())
			if err != nil || len(left) > 0 {
				t.Errorf("left at the engine: %q, %v", left, err)
			}
		})
	}
}
