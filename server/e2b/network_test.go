package e2b

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// SDKs send allow_internet_access: true for programs that say nothing. So it means nothing, and the
// configuration or a list decides.
func TestNetworkThatNobodyAskedFor(t *testing.T) {
	const none, full, list = executor.NetworkNone, executor.NetworkFull, executor.NetworkAllowlist
	wishes := map[string]string{"absent": "", "true": `, "allow_internet_access": true`, "false": `, "allow_internet_access": false`}
	lists := map[string]string{
		"no-list": "", "empty-list": `, "network": {"allowPublicTraffic": true}`, "allow": `, "network": {"allowOut": ["example.org"]}`,
		"deny": `, "network": {"denyOut": ["0.0.0.0/0"]}`, "both": `, "network": {"denyOut": ["0.0.0.0/0"], "allowOut": ["example.org"]}`,
	}
	operators := map[string]struct {
		spec, most executor.NetworkMode
	}{"nothing": {}, "none": {none, ""}, "full": {full, ""}, "at-most-none": {"", none}}
	for operator, c := range operators {
		cfg := Config{MaxNetwork: c.most, Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: c.spec}}}
		for wish, asked := range wishes {
			for name, hosts := range lists {
				t.Run(operator+"/"+wish+"/"+name, func(t *testing.T) {
					status, want := 201, cmp.Or(c.spec, none)
					switch {
					case name == "deny":
						want = none
					case name == "allow", name == "both" && wish == "false":
						status = 501 // half of a list, and a list against a refusal
					case name == "both" && c.most == none:
						status = 403
					case name == "both":
						want = list
					case wish == "false":
						want = none
					}
					w := newWorld(t, fake.Options{}, cfg)
					seen := &specs{Executor: w.s.x}
					w.s.x = seen
					rec := w.want(status, "POST", "/v2/sandboxes", `{"templateID": "base"`+asked+hosts+`}`)
					if status != 201 {
						if len(seen.all) != 0 {
							t.Errorf("got a sandbox after a refusal")
						}
						return
					}
					if got := cmp.Or(seen.all[0].Network.Mode, none); got != want {
						t.Errorf("the sandbox has the network %q, want %q", got, want)
					}
					d := w.detail(decode[sandboxAnswer](t, rec).SandboxID)
					if d.AllowInternetAccess == nil || *d.AllowInternetAccess != (want == full) {
						t.Errorf("info: got allowInternetAccess %v, and the network is %q", d.AllowInternetAccess, want)
					}
					if got := d.Network != nil && slices.Equal(d.Network.AllowOut, []string{"example.org"}); got != (want == list) {
						t.Errorf("info: got the network %+v, and it is %q", d.Network, want)
					}
				})
			}
		}
	}
}

// A backend without any network serves programs whose SDK says that they want one, and the log says
// once for each template that they have none.
func TestWishForInternet(t *testing.T) {
	var log syncBuffer
	options := fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureNetworkFull, executor.FeatureNetworkAllowlist)}
	w := newWorld(t, options, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		for _, template := range []string{"base", "data-science"} {
			w.want(201, "POST", "/v2/sandboxes", `{"templateID": "`+template+`", "allow_internet_access": true}`)
			w.want(201, "POST", "/v2/sandboxes", `{"templateID": "`+template+`"}`)
			w.want(201, "POST", "/v2/sandboxes", `{"templateID": "`+template+`", "allow_internet_access": false}`)
		}
	}
	for _, template := range []string{"base", "data-science"} {
		if got := strings.Count(log.String(), "template="+template); got != 1 {
			t.Errorf("the log has %d lines about %s, want 1:\n%s", got, template, log.String())
		}
	}
	granted := newWorld(t, fake.Options{}, Config{
		Spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	before := log.String()
	granted.create(`"allow_internet_access": true`)
	if log.String() != before {
		t.Errorf("the log complains about a wish that was granted: %s", log.String()[len(before):])
	}
}

// specs keeps what sandboxes were made from.
type specs struct {
	executor.Executor
	all []executor.Spec
}

func (s *specs) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s.all = append(s.all, spec)
	return s.Executor.Create(ctx, spec)
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
