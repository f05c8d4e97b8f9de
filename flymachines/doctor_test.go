package flymachines

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create(t, w.open(t, plain), executor.Spec{})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(other.Close)
	for name, c := range map[string]struct {
		edit func(*Config)
		ok   bool
		want string // in what it says
	}{
		"good":      {func(*Config) {}, true, "1 Machines"},
		"way":       {func(*Config) {}, true, "the runner of Machine"},
		"proxy":     {func(c *Config) { c.Proxy, c.Dial = w.Edge, nil }, true, "the Fly Proxy answers at " + w.Edge},
		"no-proxy":  {func(c *Config) { c.Proxy, c.Dial = "http://127.0.0.1:1", nil }, false, "make sure that http://127.0.0.1:1 can be reached"},
		"not-proxy": {func(c *Config) { c.Proxy, c.Dial = other.URL, nil }, false, "is not the Fly Proxy: 418"},
		"flycast":   {func(c *Config) { c.Proxy = "http://sandboxes.flycast" }, false, "fly ips allocate-v6 --private --app sandboxes"},
		"fly-dev":   {func(c *Config) { c.Proxy = "https://sandboxes.fly.dev" }, false, "fly ips allocate-v4 --shared --app sandboxes"},
		"direct":    {func(c *Config) { c.Dial = nil }, false, "this program is in no private network of Fly"},
		"no-token":  {func(c *Config) { c.Token = driver.Secret{Env: "EXECBROKER_NO_SUCH_VARIABLE"} }, false, "not set"},
		"no-app":    {func(c *Config) { c.App = "another" }, false, "fly apps create another"},
		"not-there": {func(c *Config) { c.API = "http://127.0.0.1:1" }, false, "can be reached from here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := w.config()
			c.edit(&cfg)
			ok, said := true, ""
			for _, check := range Doctor(t.Context(), driverEnv(w), cfg) {
				ok = ok && check.OK
				said += check.Name + ": " + check.Detail + ": " + check.Fix + "\n"
			}
			if ok != c.ok || !strings.Contains(said, c.want) {
				t.Errorf("got %t, %s, want %t and %q", ok, said, c.ok, c.want)
			}
		})
	}
}

// By their private addresses Machines are reached from their own network only, and that is known before one is made, if the app has one of
// another program. Where there is none yet, nothing is claimed.
func TestWayByAddresses(t *testing.T) {
	theirs := &fly.Machine{ID: "1", PrivateIP: "fdaa:0:18:a7b:1::2"}
	for name, c := range map[string]struct {
		address string
		ms      []*fly.Machine
		ok      bool
		want    string
	}{
		"outside":       {"192.0.2.7/24", nil, false, "in no private network of Fly"},
		"same":          {"fdaa:0:18:a7b:7::2/112", []*fly.Machine{theirs}, true, "from fdaa:0:18::/48"},
		"another":       {"fdaa:0:19:a7b:7::2/112", []*fly.Machine{theirs}, false, "this program is in the private network fdaa:0:19::/48, and the app app in fdaa:0:18::/48"},
		"not-known-yet": {"fdaa:0:19:a7b:7::2/112", nil, true, "shows when it has a Machine"},
	} {
		b, _ := opened(t, "http://127.0.0.1:1")
		ip, network, err := net.ParseCIDR(c.address)
		if err != nil {
			t.Fatal(err)
		}
		b.addresses = func() ([]net.Addr, error) { return []net.Addr{&net.IPNet{IP: ip, Mask: network.Mask}}, nil }
		if got := b.examineWay(t.Context(), c.ms); got.OK != c.ok || !strings.Contains(got.Detail, c.want) || got.OK == (got.Fix != "") {
			t.Errorf("%s: got %+v, want %t and %q", name, got, c.ok, c.want)
		}
	}
}

// Programs in another network of Fly reach the Machines of an app by its Flycast address.
func TestFlycast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	edge := strings.TrimPrefix(w.Edge, "http://")
	flycast := func(c *Config) {
		c.Proxy = "http://sandboxes.flycast"
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != "sandboxes.flycast:80" {
				return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
			}
			return new(net.Dialer).DialContext(ctx, network, edge)
		}
	}
	box := w.open(t, plain, flycast)
	b, err := newBackend(t.Context(), driverEnv(w), w.config())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.api.flaps.AssignIP(t.Context(), testApp, flaps.AssignIPRequest{Type: "private_v6"}); err != nil {
		t.Fatal(err)
	}
	mustRun(t, create(t, box, executor.Spec{}), "6 * 7", "42")
	cfg := w.config()
	flycast(&cfg)
	for _, c := range Doctor(t.Context(), driverEnv(w), cfg) {
		if !c.OK {
			t.Errorf("got %+v", c)
		}
	}
}
