package modal

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// valid is a configuration without mistakes.
func valid() Config {
	return Config{App: "sandboxes", TokenID: driver.Secret{Env: idVariable}, TokenSecret: driver.Secret{Env: secretVariable}}
}

func TestConfig(t *testing.T) {
	if c := valid(); c.Validate() != nil {
		t.Errorf("got %v", c.Validate())
	}
	for want, edit := range map[string]func(*Config){
		"app: want the name":          func(c *Config) { c.App = "a b" },
		"token_id: is needed":         func(c *Config) { c.TokenID = driver.Secret{} },
		"token_secret: is needed":     func(c *Config) { c.TokenSecret = driver.Secret{} },
		"environment: ":               func(c *Config) { c.Environment = "a/b" },
		"generation: unknown":         func(c *Config) { c.Generation = "v3" },
		"runtime: unknown":            func(c *Config) { c.Runtime = "runc" },
		"image: ":                     func(c *Config) { c.Image = "a\nRUN true" },
		"im-../x":                     func(c *Config) { c.Image = "im-../x" },
		"templates.a.image: is empty": func(c *Config) { c.Templates = map[string]Template{"a": {}} },
		"templates.a.gpu: want a GPU": func(c *Config) { c.Templates = map[string]Template{"a": {Image: "x", GPU: "a lot"}} },
		"templates.a.packages": func(c *Config) {
			c.Templates = map[string]Template{"a": {Image: "x", Packages: map[executor.Language][]string{"python": {"--pre"}}}}
		},
		"languages":                     func(c *Config) { c.Languages = []executor.Language{"ruby"} },
		"regions[0]":                    func(c *Config) { c.Regions = []string{"us east"} },
		"cloud: ":                       func(c *Config) { c.Cloud = "a b" },
		"limits: disk":                  func(c *Config) { c.Limits.Disk = 1 },
		"limits: processes: gVisor":     func(c *Config) { c.Limits.Processes = 1 },
		"max_limits: negative":          func(c *Config) { c.MaxLimits.CPUs = -1 },
		"requests: want a part":         func(c *Config) { c.Requests = 2 },
		"max_life: Modal ends":          func(c *Config) { c.MaxLife = driver.NoLife },
		"timeout: negative":             func(c *Config) { c.Timeout = -1 },
		"max_throttle_wait: want whole": func(c *Config) { c.MaxThrottleWait = driver.Duration(time.Millisecond) },
		"packages.registry: is needed for": func(c *Config) {
			c.Languages = []executor.Language{executor.JavaScript}
			c.Packages.Allow = map[executor.Language][]string{executor.JavaScript: {"left-pad"}}
		},
	} {
		c := valid()
		edit(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestEnvironment: what the SDK reads by itself may say nothing else than the configuration.
func TestEnvironment(t *testing.T) {
	const id, secret = "ak-1", "as-1"
	t.Setenv(idVariable, id)
	t.Setenv(secretVariable, secret)
	for name, c := range map[string]struct {
		env  map[string]string
		file string
		edit func(*Config)
		want string // empty: it is taken
	}{
		"nothing":             {},
		"the-same":            {env: map[string]string{"MODAL_TOKEN_ID": id, "MODAL_TOKEN_SECRET": secret, "MODAL_SERVER_URL": Server, "MODAL_SANDBOX_V2": "1", "MODAL_MAX_THROTTLE_WAIT": "30", "MODAL_SANDBOX_CHANNEL_IDLE_TIMEOUT": "30"}},
		"loopback":            {env: map[string]string{"MODAL_SERVER_URL": "http://127.0.0.1:4000"}},
		"loopback-v6":         {env: map[string]string{"MODAL_SERVER_URL": "http://[::1]:4000"}},
		"foreign-server":      {env: map[string]string{"MODAL_SERVER_URL": "https://modal.example:443"}, want: "variable MODAL_SERVER_URL"},
		"looks-like-modal":    {env: map[string]string{"MODAL_SERVER_URL": "https://api.modal.com@evil.example"}, want: "variable MODAL_SERVER_URL"},
		"looks-like-loopback": {env: map[string]string{"MODAL_SERVER_URL": "http://127.0.0.1.evil.example"}, want: "variable MODAL_SERVER_URL"},
		"modal-unencrypted":   {env: map[string]string{"MODAL_SERVER_URL": "http://api.modal.com:443"}, want: "variable MODAL_SERVER_URL"},
		"other-id":            {env: map[string]string{"MODAL_TOKEN_ID": "ak-2"}, want: "variable MODAL_TOKEN_ID"},
		"other-secret":        {env: map[string]string{"MODAL_TOKEN_SECRET": "as-2"}, want: "variable MODAL_TOKEN_SECRET"},
		"oauth-token":         {env: map[string]string{"MODAL_OAUTH_REFRESH_TOKEN": "r"}, want: "variable MODAL_OAUTH_REFRESH_TOKEN"},
		"oauth-client":        {env: map[string]string{"MODAL_OAUTH_CLIENT_ID": "oc-1"}, want: "variable MODAL_OAUTH_CLIENT_ID"},
		"oauth-secret":        {env: map[string]string{"MODAL_OAUTH_CLIENT_SECRET": "ov-1"}, want: "variable MODAL_OAUTH_CLIENT_SECRET"},
		"oauth-key":           {env: map[string]string{"MODAL_OAUTH_JWT_KEY": "k"}, want: "variable MODAL_OAUTH_JWT_KEY"},
		"environment":         {env: map[string]string{"MODAL_ENVIRONMENT": "prod"}, want: "variable MODAL_ENVIRONMENT"},
		"environment-same":    {env: map[string]string{"MODAL_ENVIRONMENT": "prod"}, edit: func(c *Config) { c.Environment = "prod" }},
		"builder":             {env: map[string]string{"MODAL_IMAGE_BUILDER_VERSION": "2024.10"}, want: "variable MODAL_IMAGE_BUILDER_VERSION"},
		"log-level":           {env: map[string]string{"MODAL_LOGLEVEL": "DEBUG"}, want: "variable MODAL_LOGLEVEL"},
		"throttle":            {env: map[string]string{"MODAL_MAX_THROTTLE_WAIT": "600"}, want: "variable MODAL_MAX_THROTTLE_WAIT"},
		"throttle-same":       {env: map[string]string{"MODAL_MAX_THROTTLE_WAIT": "600"}, edit: func(c *Config) { c.MaxThrottleWait = driver.Duration(10 * time.Minute) }},
		"idle":                {env: map[string]string{"MODAL_SANDBOX_CHANNEL_IDLE_TIMEOUT": "0"}, want: "variable MODAL_SANDBOX_CHANNEL_IDLE_TIMEOUT"},
		"v1":                  {env: map[string]string{"MODAL_SANDBOX_V2": "false"}, want: "variable MODAL_SANDBOX_V2"},
		"v1-same":             {env: map[string]string{"MODAL_SANDBOX_V2": "0"}, edit: func(c *Config) { c.Generation = V1 }},
		"v1-not-said":         {edit: func(c *Config) { c.Generation = V1 }, want: "generation: v1 needs the variable MODAL_SANDBOX_V2"},

		"file":                  {file: "[work]\nactive = true\ntoken_id = \"ak-2\"\n", want: "profile work, key token_id"},
		"file-same":             {file: "[work]\nactive = true\ntoken_id = \"ak-1\"\ntoken_secret = \"as-1\"\nsandbox_v2 = true\n"},
		"file-in-capitals":      {file: "[work]\nActive = true\nSERVER_URL = \"https://evil.example\"\n", want: "profile work, key server_url"},
		"file-chosen-capitals":  {env: map[string]string{"MODAL_PROFILE": "work"}, file: "[work]\nSandbox_V2 = false\n", want: "profile work, key sandbox_v2"},
		"file-not-active":       {file: "[work]\ntoken_id = \"ak-2\"\n"},
		"file-chosen":           {env: map[string]string{"MODAL_PROFILE": "work"}, file: "[work]\nserver_url = \"https://evil.example\"\n", want: "profile work, key server_url"},
		"file-another-chosen":   {env: map[string]string{"MODAL_PROFILE": "home"}, file: "[work]\nactive = true\nserver_url = \"https://evil.example\"\n[home]\n"},
		"file-v1":               {file: "[work]\nactive = true\nsandbox_v2 = false\n", edit: func(c *Config) { c.Generation = V1 }},
		"file-behind-variable":  {env: map[string]string{"MODAL_TOKEN_ID": id}, file: "[work]\nactive = true\ntoken_id = \"ak-2\"\n"},
		"file-of-something":     {file: "token_secret = \"as-secret\"", want: "not the file of the SDK"},
		"file-with-half-a-line": {file: "[work]\ntoken_secret = \"as-secret", want: "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "modal.toml")
			t.Setenv("MODAL_CONFIG_PATH", file)
			if c.file != "" {
				if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			cfg := valid()
			if c.edit != nil {
				c.edit(&cfg)
			}
			before := os.Environ()
			err := cfg.checkEnvironment()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			for _, v := range []string{"ak-2", "as-2", "as-secret", secret} {
				if err != nil && strings.Contains(err.Error(), v) {
					t.Errorf("the error has a value: %v", err)
				}
			}
			if !slices.Equal(os.Environ(), before) {
				t.Error("the environment has changed")
			}
		})
	}
}

// TestKeys: the keys of a profile that are checked are all that the SDK's own type has.
func TestKeys(t *testing.T) {
	var sdks, checked []string
	raw := reflect.TypeOf(sdk.ClientParams{}.Config).Elem().Elem()
	for f := range raw.Fields() {
		sdks = append(sdks, f.Tag.Get("toml"))
	}
	var zero bool
	p := profile{SandboxV2: &zero}
	values := p.values()
	for _, s := range (&Config{}).settings() {
		if _, ok := values[s.key]; ok {
			checked = append(checked, s.key)
		}
	}
	checked = append(checked, "active") // which says which profile it is
	slices.Sort(sdks)
	slices.Sort(checked)
	if !slices.Equal(sdks, checked) {
		t.Errorf("checked are %q, the SDK has %q", checked, sdks)
	}
}

// TestOpenRefuses: Open checks what the SDK would take from its environment.
func TestOpenRefuses(t *testing.T) {
	t.Setenv(idVariable, "ak-1")
	t.Setenv(secretVariable, "as-1")
	t.Setenv(serverVariable, "https://evil.example")
	if box, err := Open(t.Context(), driver.Env{Owner: "me"}, valid()); err == nil || !strings.Contains(err.Error(), serverVariable) {
		t.Errorf("got %v, %v, want that %s is refused", box, err, serverVariable)
	}
}

// TestToken: what the configuration names is read for each request, and the SDK does not have it.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	c := valid()
	c.TokenID, c.TokenSecret = driver.Secret{Env: idVariable}, driver.Secret{File: file}
	t.Setenv(idVariable, "ak-1")
	ctx := metadata.AppendToOutgoingContext(t.Context(), headerID, named, headerSecret, named, "other", "x")
	if _, err := c.authorized(ctx); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "token_secret: ") {
		t.Errorf("got %v, want that there is no secret", err)
	}
	for _, secret := range []string{"as-1", "as-2"} {
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		with, err := c.authorized(ctx)
		if err != nil {
			t.Fatal(err)
		}
		md, _ := metadata.FromOutgoingContext(with)
		for header, want := range map[string]string{headerID: "ak-1", headerSecret: secret, "other": "x"} {
			if got := md.Get(header); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: got %q, want %q", header, got, want)
			}
		}
	}
}

// What is declared is what the runtime can do.
func TestRuntimes(t *testing.T) {
	t.Setenv(idVariable, "ak-1")
	t.Setenv(secretVariable, "as-1")
	for runtime, isolation := range map[Runtime]executor.Isolation{"": executor.IsolationGVisor, GVisor: executor.IsolationGVisor, VM: executor.IsolationMicroVM} {
		c := valid()
		c.Runtime = runtime
		box, err := Open(t.Context(), driver.Env{Owner: "me"}, c)
		if err != nil {
			t.Fatal(err)
		}
		caps := box.Info().Capabilities
		for _, f := range runner.GVisorLacks() {
			if got, want := slices.Contains(caps.Features, f), runtime == VM; got != want {
				t.Errorf("%q: got %s %t, want %t", runtime, f, got, want)
			}
		}
		if caps.Isolation != isolation {
			t.Errorf("%q: got %s, want %s", runtime, caps.Isolation, isolation)
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSize(t *testing.T) {
	c := valid()
	c.Requests = 0.25
	var p sdk.SandboxCreateParams
	c.size(executor.Limits{CPUs: 2, MemoryBytes: 960 << 20}, &p)
	if p.CPU != 0.5 || p.CPULimit != 2 || p.MemoryMiB != 256 || p.MemoryLimitMiB != 1024 {
		t.Errorf("got %v of %v cores, %d of %d MiB", p.CPU, p.CPULimit, p.MemoryMiB, p.MemoryLimitMiB)
	}
	c.size(executor.Limits{CPUs: 1e-9, MemoryBytes: 1}, &p)
	if p.CPU <= 0 || p.CPU > p.CPULimit || p.MemoryMiB <= 0 || p.MemoryLimitMiB < minMemory/mib {
		t.Errorf("got %v of %v cores, %d of %d MiB", p.CPU, p.CPULimit, p.MemoryMiB, p.MemoryLimitMiB)
	}
	c.size(executor.Limits{CPUs: 1, MemoryBytes: 1 << 62}, &p)
	if p.MemoryLimitMiB <= 0 {
		t.Errorf("got %d MiB", p.MemoryLimitMiB)
	}
	for _, d := range []struct{ life, timeout, want time.Duration }{
		{time.Hour, time.Minute, time.Hour + 2*time.Minute},
		{1500 * time.Millisecond, 0, 62 * time.Second},
		{24 * time.Hour, time.Minute, 24 * time.Hour},
		{0, time.Minute, 24 * time.Hour},
	} {
		if got := lifetime(d.life, d.timeout); got != d.want {
			t.Errorf("life %v, timeout %v: got %v, want %v", d.life, d.timeout, got, d.want)
		}
	}
}

// TestTags: what the tags of a Sandbox say is read as it was written, and a Sandbox that says
// different things about whose it is is no session.
func TestTags(t *testing.T) {
	id := strings.Repeat("b", 26)
	labels := map[string]string{driver.LabelID: id, driver.LabelOwner: "me", "long": strings.Repeat("x", 255), "more": strings.Repeat("y", 255)}
	for i := range 10 {
		labels[strings.Repeat("k", i+1)] = strings.Repeat("z", 250)
	}
	start := &runner.Start{Create: &driver.Create{ID: id, Labels: labels}, Info: executor.SessionInfo{Labels: labels}}
	made, err := tags(start)
	if err != nil || len(made) < 5 {
		t.Fatalf("got %v, %v", made, err)
	}
	info, err := sessionInfo("sb-1", made)
	if err != nil || info.Handle.Session != id || !remote.Carries(info.Labels, labels) || string(info.Handle.State) != `{"s":"sb-1"}` {
		t.Errorf("got %+v, %v", info, err)
	}
	for name, change := range map[string]func(map[string]string){
		"manager": func(m map[string]string) { delete(m, tagManager) },
		"owner":   func(m map[string]string) { m[tagOwner] = remote.OwnerHash("you") },
		"id":      func(m map[string]string) { m[tagSession] = strings.Repeat("c", 26) },
		"no-id":   func(m map[string]string) { m[tagSession] = "../x" },
		"note":    func(m map[string]string) { clear(m); m[tagManager], m[tagSession] = manager, id },
	} {
		m, err := tags(start)
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		if _, err := sessionInfo("sb-1", m); !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for i := range 100 {
		labels[strings.Repeat("l", i+1)] = strings.Repeat("z", 250)
	}
	if _, err := tags(start); !errors.Is(err, executor.ErrInvalid) {
		t.Errorf("labels without end: got %v", err)
	}
}

func FuzzSessionInfo(f *testing.F) {
	f.Add(strings.Repeat("b", 26), "h", `{"created":"2026-01-01T00:00:00Z","labels":{}}`, "}")
	f.Fuzz(func(t *testing.T, session, owner, note, more string) {
		info, err := sessionInfo("sb-1", map[string]string{tagManager: manager, tagSession: session, tagOwner: owner, tagNote + "0": note, tagNote + "1": more})
		if err == nil && (info.Handle.Session != session || remote.OwnerHash(info.Labels[driver.LabelOwner]) != owner) {
			t.Errorf("got %+v", info)
		}
	})
}

// TestTerminations: what Modal says of an end, and what that means for a run.
func TestTerminationOf(t *testing.T) {
	for status, want := range map[pb.GenericResult_GenericStatus]executor.Reason{
		pb.GenericResult_GENERIC_STATUS_SUCCESS:                 executor.ReasonLifetime,
		pb.GenericResult_GENERIC_STATUS_TERMINATED:              executor.ReasonLifetime,
		pb.GenericResult_GENERIC_STATUS_TIMEOUT:                 executor.ReasonLifetime,
		pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT:            executor.ReasonLifetime,
		pb.GenericResult_GENERIC_STATUS_FAILURE:                 executor.ReasonSandbox,
		pb.GenericResult_GENERIC_STATUS_INIT_FAILURE:            executor.ReasonSandbox,
		pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE:        "",
		pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION: "",
		99: executor.ReasonSandbox, // of a later version
	} {
		end := terminationOf(pb.GenericResult_builder{Status: status, Exitcode: 3}.Build())
		if !end.Ended || end.Reason != want || (end.Code == 3) != (want == executor.ReasonSandbox) {
			t.Errorf("%s: got %+v, want %q", status, end, want)
		}
	}
}

func TestErrors(t *testing.T) {
	throttled, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(pb.RPCRetryPolicy_builder{RetryAfterSecs: 7}.Build())
	if err != nil {
		t.Fatal(err)
	}
	for want, cases := range map[error][]error{
		executor.ErrAuth:        {status.Error(codes.Unauthenticated, "x"), status.Error(codes.PermissionDenied, "x")},
		executor.ErrExhausted:   {throttled.Err(), sdk.ResourceExhaustedError{Exception: "x"}},
		executor.ErrNotFound:    {status.Error(codes.NotFound, "x"), sdk.NotFoundError{Exception: "x"}},
		executor.ErrInvalid:     {status.Error(codes.InvalidArgument, "x"), sdk.InvalidError{Exception: "x"}},
		executor.ErrUnsupported: {status.Error(codes.Unimplemented, "x")},
		executor.ErrUnavailable: {status.Error(codes.Unavailable, "x"), io.EOF, sdk.RemoteError{Exception: "x"}, sdk.ConflictError{Exception: "x"}},
	} {
		for _, err := range cases {
			got := fail(t.Context(), "Sandbox sb-1", err)
			if !errors.Is(got, want) || !strings.Contains(got.Error(), "Sandbox sb-1") {
				t.Errorf("%v: got %v, want %v and the ID", err, got, want)
			}
		}
	}
	var e *executor.Error
	if errors.As(fail(t.Context(), "app", throttled.Err()), &e); e.RetryAfter != 7*time.Second {
		t.Errorf("got %v", e.RetryAfter)
	}
	late, cancel := context.WithCancelCause(t.Context())
	cancel(errNoSandbox)
	if got := fail(late, "app", io.EOF); !errors.Is(got, errNoSandbox) {
		t.Errorf("got %v, want the cause", got)
	}
	long := fail(t.Context(), "app", status.Error(codes.Unavailable, strings.Repeat("x\x1b", 1<<20)))
	if s := long.Error(); len(s) > 1000 || strings.Contains(s, "\x1b") {
		t.Errorf("got %d bytes", len(s))
	}
}

// TestUnary: within what the SDK repeats, a lost answer to a create is an error that the SDK does
// not know, and everything else has a time limit.
func TestUnary(t *testing.T) {
	for method, creates := range map[string]bool{
		pb.ModalClient_SandboxCreate_FullMethodName: true, pb.ModalClient_SandboxCreateV2_FullMethodName: true,
		pb.ModalClient_SandboxTerminateV2_FullMethodName: false,
	} {
		for code, unknown := range map[codes.Code]bool{
			codes.Unavailable: true, codes.Internal: true, codes.Unknown: true, codes.DeadlineExceeded: true, codes.Canceled: true, codes.Aborted: true,
			codes.ResourceExhausted: false, codes.InvalidArgument: false, codes.NotFound: false, codes.AlreadyExists: false,
		} {
			var limited bool
			err := unary(t.Context(), method, nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				_, limited = ctx.Deadline()
				return status.Error(code, "x")
			})
			_, ofGRPC := status.FromError(err)
			if ofGRPC != !(creates && unknown) || limited != !creates {
				t.Errorf("%s, %s: got %v, limited %t", method, code, err, limited)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ctx, c := watched(ctx)
	cancel()
	err := unary(context.WithoutCancel(ctx), "x", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		t.Error("a request of a caller who has left")
		return nil
	})
	if !errors.Is(err, errLeft) || c.made != "" {
		t.Errorf("got %v", err)
	}
}
