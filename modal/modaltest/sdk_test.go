package modaltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Main(m)) }

const testImage = "docker.io/library/python:3.13-slim"

// begin starts a server over the engine of this machine. At the end nothing of it may be left
// there.
func begin(t *testing.T, edit ...func(*Config)) *Server {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	cfg := Config{
		Engine: host, Images: map[string]string{testImage: dockertest.Python, "named:latest": dockertest.Python},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, e := range edit {
		e(&cfg)
	}
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		filter := s.engine.Filter()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		left, err := dockertest.Containers(context.Background(), host, filter)
		if err != nil || len(left) > 0 {
			t.Errorf("left at the engine: %q, %v", left, err)
		}
	})
	return s
}

// sdk is Modal's own client, with an app.
type sdk struct {
	*modal.Client
	app *modal.App
}

// connect makes a client. The SDK reads the address of the server from the environment only.
func connect(t *testing.T, s *Server, edit ...func(*modal.ClientParams)) sdk {
	t.Helper()
	t.Setenv("MODAL_SERVER_URL", s.URL())
	t.Setenv("MODAL_CONFIG_PATH", t.TempDir()+"/none")
	id, secret := s.Token()
	p := &modal.ClientParams{TokenID: id, TokenSecret: secret, Environment: "main", Logger: slog.New(slog.DiscardHandler)}
	for _, e := range edit {
		e(p)
	}
	c, err := modal.NewClientWithOptions(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	app, err := c.Apps.FromName(t.Context(), "sandboxes", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	return sdk{c, app}
}

// create makes a Sandbox of V2, or of V1.
func (c sdk) create(t *testing.T, v2 bool, p *modal.SandboxCreateParams) (*modal.Sandbox, error) {
	t.Helper()
	image := c.Images.FromRegistry(testImage, nil)
	if p == nil {
		p = &modal.SandboxCreateParams{}
	}
	create := c.Sandboxes.Create
	if v2 {
		create = c.Sandboxes.ExperimentalCreate
	}
	sb, err := create(t.Context(), c.app, image, p)
	if err == nil {
		t.Cleanup(func() {
			if err := sb.Detach(); err != nil { // its connection to the command router
				t.Error(err)
			}
		})
	}
	return sb, err
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// generations runs a test over both generations of the API.
func generations(t *testing.T, test func(t *testing.T, s *Server, c sdk, v2 bool)) {
	for _, v2 := range []bool{false, true} {
		name, flag := "v1", "0"
		if v2 {
			name, flag = "v2", "1"
		}
		t.Run(name, func(t *testing.T) {
			t.Setenv("MODAL_SANDBOX_V2", flag)
			s := begin(t)
			test(t, s, connect(t, s), v2)
		})
	}
}

// TestProcesses: streams of processes, with their ends and codes.
func TestProcesses(t *testing.T) {
	generations(t, func(t *testing.T, s *Server, c sdk, v2 bool) {
		sb := must(c.create(t, v2, nil))(t)
		p := must(sb.Exec(t.Context(), []string{"sh", "-c", "cat; echo $X >&2; exit 7"}, &modal.SandboxExecParams{Env: map[string]string{"X": "told"}}))(t)
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: a message holds less than 4
		wrote := make(chan error, 1)
		go func() { // a process waits for whom reads what it writes
			for range 4 {
				if _, err := p.Stdin.Write(big); err != nil {
					wrote <- err
					return
				}
			}
			wrote <- p.Stdin.Close()
		}()
		out := must(io.ReadAll(p.Stdout))(t)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out, bytes.Repeat(big, 4)) {
			t.Errorf("got %d bytes, want 4 MiB as they were written", len(out))
		}
		if got := string(must(io.ReadAll(p.Stderr))(t)); got != "told\n" {
			t.Errorf("got %q", got)
		}
		if code := must(p.Wait(t.Context(), nil))(t); code != 7 {
			t.Errorf("got exit code %d, want 7", code)
		}
		if code := must(sb.Poll(t.Context(), nil))(t); code != nil {
			t.Errorf("the Sandbox has ended with %d", *code)
		}
		if n := s.Counts(); n["processes"] != 1 || n["sandboxes"] != 1 || n["twice"] != 0 {
			t.Errorf("got %v", n)
		}
		if code := must(sb.Terminate(t.Context(), &modal.SandboxTerminateParams{Wait: true}))(t); code != 137 {
			t.Errorf("got %d, want 137", code)
		}
		if left, err := s.Containers(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	})
}

// TestStreamsAreCut: nothing is lost, and nothing comes twice, when streams are cut behind every
// message.
func TestStreamsAreCut(t *testing.T) {
	s := begin(t)
	c := connect(t, s)
	sb := must(c.create(t, true, nil))(t)
	defer s.Switch(Cut(1, "TaskExecStdioRead").Times(7))()
	defer s.Switch(Lost("TaskExecStdinWrite").Times(3))()
	defer s.Switch(Lost("TaskExecStart").Times(2))()
	p := must(sb.Exec(t.Context(), []string{"sh", "-c", "cat; head -c 700000 /dev/zero | tr '\\0' y"}, nil))(t)
	must(p.Stdin.Write([]byte("once\n")))(t)
	if err := p.Stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(must(io.ReadAll(p.Stdout))(t)), "once\n"+strings.Repeat("y", 700000); got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
	if n := s.Counts(); n["processes"] != 1 || n["repeated"] != 2 || n["twice"] != 3*len("once\n") {
		t.Errorf("got %v", n)
	}
}

// TestUnread: a process whose output nobody has read waits, and ends with its Sandbox. What it had
// written can be read then.
func TestUnread(t *testing.T) {
	s := begin(t)
	c := connect(t, s)
	sb := must(c.create(t, true, nil))(t)
	p := must(sb.Exec(t.Context(), []string{"head", "-c", "4000000", "/dev/zero"}, nil))(t)
	must(sb.Terminate(t.Context(), &modal.SandboxTerminateParams{Wait: true}))(t)
	if code := must(p.Wait(t.Context(), nil))(t); code == 0 {
		t.Error("it ended by itself")
	}
	if n := len(must(io.ReadAll(p.Stdout))(t)); n >= 4000000 {
		t.Errorf("got all of %d bytes", n)
	}
}

// TestCloseWaits: a Sandbox that is being made when the server closes is not left.
func TestCloseWaits(t *testing.T) {
	s := begin(t) // looks for what is left at the end
	c := connect(t, s)
	image := must(c.Images.FromRegistry(testImage, nil).Build(t.Context(), c.app, nil))(t)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = c.Sandboxes.ExperimentalCreate(t.Context(), c.app, image, nil) // its server closes
	}()
	waittest.Until(t, "a Sandbox is asked for", func() error {
		if s.Counts()["SandboxCreateV2"] == 0 {
			return errors.New("the server has not been asked")
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	left, err := s.Containers(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	c.Close()
	<-asked
}

// TestNames: a name is unique among the Sandboxes of an app that live.
func TestNames(t *testing.T) {
	generations(t, func(t *testing.T, s *Server, c sdk, v2 bool) {
		sb := must(c.create(t, v2, &modal.SandboxCreateParams{Name: "mine", Tags: map[string]string{"owner": "a", "x": "1"}}))(t)
		_, err := c.create(t, v2, &modal.SandboxCreateParams{Name: "mine"})
		var taken modal.AlreadyExistsError
		if !errors.As(err, &taken) {
			t.Errorf("got %v, want that the name is taken", err)
		}
		if got := must(c.Sandboxes.FromName(t.Context(), "sandboxes", "mine", nil))(t); got.SandboxID != sb.SandboxID {
			t.Errorf("got %s, want %s", got.SandboxID, sb.SandboxID)
		}
		must(c.create(t, v2, &modal.SandboxCreateParams{Tags: map[string]string{"owner": "b"}}))(t)
		var ids []string
		for found, err := range must(c.Sandboxes.List(t.Context(), &modal.SandboxListParams{AppID: c.app.AppID, Tags: map[string]string{"owner": "a"}}))(t) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, found.SandboxID)
		}
		if want := []string{sb.SandboxID}; !slices.Equal(ids, want) {
			t.Errorf("got %q, want %q", ids, want)
		}
		if tags := must(sb.GetTags(t.Context(), nil))(t); tags["x"] != "1" {
			t.Errorf("got tags %v", tags)
		}
		must(sb.Terminate(t.Context(), &modal.SandboxTerminateParams{Wait: true}))(t)
		var missing modal.NotFoundError
		if _, err := c.Sandboxes.FromName(t.Context(), "sandboxes", "mine", nil); !errors.As(err, &missing) {
			t.Errorf("got %v, want that nothing has the name", err)
		}
		must(c.create(t, v2, &modal.SandboxCreateParams{Name: "mine"}))(t)
	})
}

// TestEnds: how a Sandbox has ended.
func TestEnds(t *testing.T) {
	s := begin(t)
	c := connect(t, s)
	for _, test := range []struct {
		name string
		p    modal.SandboxCreateParams
		want int
	}{
		{"by-itself", modal.SandboxCreateParams{Command: []string{"sh", "-c", "exit 3"}}, 3},
		{"timeout", modal.SandboxCreateParams{Timeout: time.Second}, 124},
		{"idle", modal.SandboxCreateParams{IdleTimeout: time.Second}, 137},
	} {
		t.Run(test.name, func(t *testing.T) {
			sb := must(c.create(t, true, &test.p))(t)
			if got := must(sb.Wait(t.Context(), nil))(t); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestRefusals: what is not there is refused by name, and what is wrong is said.
func TestRefusals(t *testing.T) {
	s := begin(t, func(c *Config) { c.MaxSandboxes = 1 })
	c := connect(t, s)
	probe := must(modal.NewTCPProbe(80, nil))(t)
	for _, test := range []struct {
		name string
		p    modal.SandboxCreateParams
		code codes.Code
		says string
	}{
		{"tunnel", modal.SandboxCreateParams{EncryptedPorts: []int{80}}, codes.Unimplemented, "tunnel"},
		{"allow-list", modal.SandboxCreateParams{OutboundCIDRAllowlist: &modal.Allowlist{}}, codes.Unimplemented, "ALLOWLIST"},
		{"probe", modal.SandboxCreateParams{ReadinessProbe: probe}, codes.Unimplemented, "readiness_probe"},
		{"snapshot", modal.SandboxCreateParams{ExperimentalEnableSnapshot: true}, codes.Unimplemented, "enable_snapshot"},
		{"terminal", modal.SandboxCreateParams{PTY: true}, codes.Unimplemented, "pty_info"},
		{"cloud", modal.SandboxCreateParams{Cloud: "none"}, codes.InvalidArgument, "invalid cloud"},
		{"region", modal.SandboxCreateParams{Regions: []string{"us-east", "none"}}, codes.InvalidArgument, "invalid region"},
		{"too-long", modal.SandboxCreateParams{Timeout: 48 * time.Hour}, codes.InvalidArgument, "24 hours"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.create(t, true, &test.p)
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v with %q", err, test.code, test.says)
			}
		})
	}
	must(c.create(t, true, nil))(t)
	if _, err := c.create(t, true, nil); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: got %v", err)
	}
	id, secret := s.Token()
	other := must(modal.NewClientWithOptions(&modal.ClientParams{TokenID: id, TokenSecret: secret, GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{unknownField}}))(t)
	defer other.Close()
	if _, err := other.Apps.FromName(t.Context(), "sandboxes", nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown field: got %v", err)
	}
	for _, p := range []modal.ClientParams{{TokenID: "ak-1", TokenSecret: "as-1", Environment: "main"}} {
		x := must(modal.NewClientWithOptions(&p))(t)
		if _, err := x.Apps.FromName(t.Context(), "sandboxes", nil); status.Code(errors.Unwrap(err)) != codes.Unauthenticated && status.Code(err) != codes.Unauthenticated {
			t.Errorf("another token: got %v", err)
		}
		x.Close()
	}
	if _, err := c.Sandboxes.ExperimentalCreate(t.Context(), c.app, c.Images.FromRegistry("docker.io/library/none:1", nil), nil); err == nil || !strings.Contains(err.Error(), "manifest unknown") {
		t.Errorf("an image that is not there: got %v", err)
	}
}
