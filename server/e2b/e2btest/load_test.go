package e2btest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/executor"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/server/e2b"
)

// sdk speaks to a server as E2B's SDKs do.
type sdk struct {
	url  string
	http *http.Client
}

// made is what the control plane says of a sandbox.
type made struct{ SandboxID, EnvdAccessToken string }

func (c sdk) do(ctx context.Context, method, path string, body any, headers ...string) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-API-KEY", Key)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, got)
	}
	return got, err
}

func (c sdk) create(ctx context.Context) (m made, err error) {
	got, err := c.do(ctx, "POST", "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 1800})
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(got, &m)
}

// run runs code and returns what it printed, if it came to its end.
func (c sdk) run(ctx context.Context, m made, code string) (string, error) {
	got, err := c.do(ctx, "POST", "/execute", map[string]any{"code": code}, "E2b-Sandbox-Id", m.SandboxID, "E2b-Sandbox-Port", "49999")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	ended := false
	for line := range bytes.Lines(got) {
		var e struct{ Type, Text, Value string }
		if err := json.Unmarshal(line, &e); err != nil {
			return "", err
		}
		switch ended = e.Type == "end_of_execution"; e.Type {
		case "stdout":
			out.WriteString(e.Text)
		case "error":
			return "", fmt.Errorf("the code failed: %s", e.Value)
		}
	}
	if !ended {
		return "", fmt.Errorf("the stream was cut: %q", got)
	}
	return out.String(), nil
}

// command runs a command to its end.
func (c sdk) command(ctx context.Context, m made, args ...string) (string, error) {
	no := false
	r := connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: args[0], Args: args[1:]}, Stdin: &no})
	r.Header().Set("E2b-Sandbox-Id", m.SandboxID)
	r.Header().Set("E2b-Sandbox-Port", "49983")
	r.Header().Set("X-Access-Token", m.EnvdAccessToken)
	s, err := pb.NewProcessClient(c.http, c.url, connect.WithProtoJSON()).Start(ctx, r)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var out strings.Builder
	for s.Receive() {
		out.Write(s.Msg().GetEvent().GetData().GetStdout())
		if end := s.Msg().GetEvent().GetEnd(); end != nil && end.ExitCode != 0 {
			return "", fmt.Errorf("exit code %d", end.ExitCode)
		}
	}
	return out.String(), s.Err()
}

func open(t testing.TB, o Options) (*Server, sdk) {
	t.Helper()
	o.Docker.Limits.Memory = 64 << 20
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, sdk{s.URL, &http.Client{Transport: tr}}
}

// A hundred sandboxes at once, each with twenty runs that need what the one before has left.
func TestHundredSandboxes(t *testing.T) {
	const boxes, runs = 100, 20
	_, c := open(t, Options{Owner: "e2btest-hundred", Server: e2b.Config{MaxSandboxes: boxes}})
	start := time.Now()
	all := make([]made, boxes)
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8) // an engine starts no more at once on two processors
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = c.create(ctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	up := time.Since(start)
	g, ctx = errgroup.WithContext(t.Context())
	for i, m := range all {
		g.Go(func() error {
			for n := range runs {
				code := fmt.Sprintf("kept = (kept if %d else %d) + 1\nprint(kept)", n, 1000*i)
				got, err := c.run(ctx, m, code)
				if err != nil {
					return fmt.Errorf("sandbox %d, run %d: %w", i, n, err)
				}
				if want := strconv.Itoa(1000*i+n+1) + "\n"; got != want {
					return fmt.Errorf("sandbox %d, run %d: got %q, want %q", i, n, got, want)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d sandboxes were up after %v, and their %d runs over after %v", boxes, up, boxes*runs, time.Since(start))
}

// What the server adds to the backend, in one run: code and commands in the same sandbox, through
// the server and beside it.
func BenchmarkOverhead(b *testing.B) {
	s, c := open(b, Options{Owner: "e2btest-overhead"})
	m, err := c.create(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	raw, err := s.Executor.Create(b.Context(), executor.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	direct := func(req executor.Request) error {
		_, err := raw.Run(b.Context(), req, func(executor.Event) error { return nil })
		return err
	}
	for _, bench := range []struct {
		name string
		f    func() error
	}{
		{"run-code/backend", func() error { return direct(executor.Request{Language: executor.Python, Code: "print(6 * 7)"}) }},
		{"run-code/server", func() error { _, err := c.run(b.Context(), m, "print(6 * 7)"); return err }},
		{"command/backend", func() error { return direct(executor.Request{Command: []string{"/bin/echo", "42"}}) }},
		{"command/server", func() error { _, err := c.command(b.Context(), m, "/bin/echo", "42"); return err }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				if err := bench.f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What the backend is told when nothing is said: the zero Options are a whole server.
func TestStart(t *testing.T) {
	s, c := open(t, Options{Owner: "e2btest-start", Docker: docker.Config{}})
	m, err := c.create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.run(t.Context(), m, "print(6 * 7)"); err != nil || got != "42\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := c.command(t.Context(), m, "/bin/echo", "42"); err != nil || got != "42\n" {
		t.Errorf("got %q, %v", got, err)
	}
	// Clients may be root, beside what the contract knows.
	r := connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "id", Args: []string{"-u"}}})
	r.Header().Set("E2b-Sandbox-Id", m.SandboxID)
	r.Header().Set("E2b-Sandbox-Port", "49983")
	r.Header().Set("X-Access-Token", m.EnvdAccessToken)
	r.Header().Set("Authorization", "Basic cm9vdDo=")
	st, err := pb.NewProcessClient(c.http, s.URL).Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var out strings.Builder
	for st.Receive() {
		out.Write(st.Msg().GetEvent().GetData().GetStdout())
	}
	if out.String() != "0\n" || st.Err() != nil {
		t.Errorf("got uid %q, %v", out.String(), st.Err())
	}
}
