package flytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

// emulator is an emulator with a client.
type emulator struct {
	*Server
	t   *testing.T
	url string
}

const testApp = "sandboxes"

// begin starts an emulator over the engine of this machine. At the end nothing of it may be left
// there.
func begin(t *testing.T, edit ...func(*Config)) *emulator {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	cfg := Config{Engine: host, Apps: []App{{Name: testApp}}, Rate: math.Inf(1), Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, e := range edit {
		e(&cfg)
	}
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
		left, err := dockertest.Containers(context.Background(), host, s.engine.Filter())
		if err != nil || len(left) > 0 {
			t.Errorf("left at the engine: %q, %v", left, err)
		}
	})
	return &emulator{s, t, srv.URL}
}

// ask sends a request and decodes the answer into out, which may be nil.
func (f *emulator) ask(status int, method, path string, in, out any) string {
	f.t.Helper()
	var body io.Reader
	switch in := in.(type) {
	case nil:
	case string:
		body = strings.NewReader(in)
	default:
		b, err := json.Marshal(in)
		if err != nil {
			f.t.Fatal(err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+"/v1/apps/"+testApp+path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.Token())
	res, err := f.client().Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		f.t.Fatalf("%s %s: got %d %s, %v, want %d", method, path, res.StatusCode, b, err, status)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			f.t.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
	return string(b)
}

// config is that of a Machine that runs a shell script and then does nothing.
func config(script string, edit ...func(map[string]any)) map[string]any {
	c := map[string]any{
		"image":   dockertest.Trixie,
		"init":    map[string]any{"exec": []string{"sh", "-c", script}},
		"restart": map[string]any{"policy": "no"},
	}
	for _, e := range edit {
		e(c)
	}
	return c
}

// with sets a field of a configuration.
func with(key string, value any) func(map[string]any) {
	return func(c map[string]any) { c[key] = value }
}

const idle = "exec sleep 1000"

// machine creates a Machine and waits until it has started.
func (f *emulator) machine(cfg map[string]any) machineJSON {
	f.t.Helper()
	var m machineJSON
	f.ask(200, "POST", "/machines", map[string]any{"config": cfg}, &m)
	f.until(m.ID, stateStarted)
	return f.see(m.ID)
}

// until waits for a state.
func (f *emulator) until(id string, states ...string) {
	f.t.Helper()
	f.ask(200, "GET", "/machines/"+id+"/wait?timeout=60&state="+strings.Join(states, "&state="), nil, nil)
}

func (f *emulator) see(id string) (m machineJSON) {
	f.t.Helper()
	f.ask(200, "GET", "/machines/"+id, nil, &m)
	return m
}

// logs polls what a Machine has printed until it contains want.
func (f *emulator) logs(id, want string) {
	f.t.Helper()
	waittest.Until(f.t, id, func() error {
		f.mu.Lock()
		c := f.apps[testApp].machines[id].container
		f.mu.Unlock()
		if c == "" {
			return errors.New("it has no container")
		}
		if got := f.tail(f.t.Context(), c, false); !strings.Contains(got, want) {
			return fmt.Errorf("got output %q, want %q", got, want)
		}
		return nil
	})
}

// container returns what the engine says of a Machine.
func (f *emulator) container(id string) client.ContainerInspectResult {
	f.t.Helper()
	f.mu.Lock()
	c := f.apps[testApp].machines[id].container
	f.mu.Unlock()
	i, err := f.engine.ContainerInspect(f.t.Context(), c, client.ContainerInspectOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return i
}
