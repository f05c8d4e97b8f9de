package flymachines

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// endpoint returns the address of the runner of a Machine.
func (b *backend) endpoint(m *fly.Machine, secret string, port int) runner.Endpoint {
	e := runner.Endpoint{Token: secret, Transport: b.data, Gone: func(ctx context.Context) error { return b.gone(ctx, m.ID) }}
	if b.cfg.Proxy != "" {
		e.URL = strings.TrimSuffix(b.cfg.Proxy, "/")
		e.Header = map[string][]string{"Fly-Force-Instance-Id": {m.ID}}
	} else {
		e.URL = fmt.Sprintf("http://[%s]:%d", m.PrivateIP, port)
	}
	return e
}

// flycastDomain is that of the addresses at which the Fly Proxy answers in private networks.
const flycastDomain = ".flycast"

// flycast reports whether Machines are reached by Flycast.
func (c *Config) flycast() bool {
	u, err := url.Parse(c.Proxy)
	return err == nil && strings.HasSuffix(u.Hostname(), flycastDomain)
}

// service is how the Fly Proxy reaches the runner: at the port that Proxy names. It neither starts
// nor stops Machines, because it does not know what they do.
func (c *Config) service() fly.MachineService {
	off, no, public, handlers := fly.MachineAutostopOff, false, 443, []string{"tls", "http"}
	if c.flycast() { // without TLS: see checkAddress
		public, handlers = 80, []string{"http"}
	}
	if u, err := url.Parse(c.Proxy); err == nil && (c.flycast() || u.Scheme == "https") && u.Port() != "" {
		public, _ = strconv.Atoi(u.Port()) // net/url takes digits only
	}
	return fly.MachineService{
		Protocol: "tcp", InternalPort: c.port(), Autostop: &off, Autostart: &no,
		Ports: []fly.MachinePort{{Port: &public, Handlers: handlers}},
	}
}

// Pauses between questions to a runner that is starting, and between those to the API about it.
const (
	readyPause = 20 * time.Millisecond
	endPause   = 2 * time.Second
)

// apartPatience is how long a Machine is tried although the addresses of this program say that it
// is not reachable. There may be a route all the same.
const apartPatience = 10 * time.Second

// ready waits until the runner of a started Machine answers.
func (b *backend) ready(ctx context.Context, m *fly.Machine, e runner.Endpoint) error {
	began, wait, asked := time.Now(), readyPause, time.Now()
	for {
		actx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := e.Ready(actx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Since(asked) > endPause {
			asked = time.Now()
			if gone := e.Gone(ctx); gone != nil {
				return gone
			}
		}
		if hopeless(err) || time.Since(began) > apartPatience && silent(err) && b.apart(m) != "" || remote.Pause(ctx, wait) != nil {
			return driver.Fail(executor.ErrUnavailable, executor.RanNo, b.unreached(m, e, err))
		}
		wait = min(wait*3/2, time.Second)
	}
}

// hopeless reports whether an error of a connection will not change while this program runs where
// it does.
func hopeless(err error) bool {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	return errors.Is(err, syscall.ENETUNREACH) || errors.As(err, &name) && name.IsNotFound || errors.As(err, &certificate)
}

// silent reports whether nothing has answered: neither a runner nor the kernel of a Machine in
// which none listens yet.
func silent(err error) bool {
	var status *runner.StatusError
	return !errors.As(err, &status) && !errors.Is(err, syscall.ECONNREFUSED)
}

// unreached is the error of a runner that does not answer, with advice about the configuration.
func (b *backend) unreached(m *fly.Machine, e runner.Endpoint, err error) error {
	advice := b.advice(m)
	var status *runner.StatusError
	if errors.As(err, &status) && status.Status == http.StatusUnauthorized {
		advice = "another program listens there"
	}
	return fmt.Errorf("Machine %s has started and its runner is not reached at %s: %w; %s", m.ID, e.URL, err, advice)
}

// advice says what is needed to reach a Machine.
func (b *backend) advice(m *fly.Machine) string {
	switch {
	case b.cfg.flycast():
		return "the app " + b.cfg.App + " needs a Flycast address in the private network of this program: fly ips allocate-v6 --private --network NETWORK --app " + b.cfg.App
	case b.cfg.Proxy != "":
		return "proxy has to lead to the app " + b.cfg.App + ", and to the Machine that Fly-Force-Instance-Id names"
	case b.cfg.Dial != nil:
		return "the dialer of this program has to lead into the private network of the app"
	}
	if why := b.apart(m); why != "" {
		return why + "; use proxy, or run this program in the private network of the app"
	}
	return "this program has to be in the private network of the app, or use proxy"
}

// fly6PN is where all private networks of Fly are. The first 48 bits of an address say in which one
// it is.
var fly6PN = netip.MustParsePrefix("fdaa::/16")

const networkBits = 48

// networks returns the private networks of Fly that this program is in.
func (b *backend) networks() (in []netip.Prefix) {
	all, err := b.addresses()
	if err != nil {
		return nil // then this is not known
	}
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok && fly6PN.Contains(ip) {
			in = append(in, networkOf(ip))
		}
	}
	return in
}

func networkOf(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, networkBits).Masked() }

// apart returns why this program cannot connect to the private address of a Machine. Empty: it may
// be able to.
func (b *backend) apart(m *fly.Machine) string {
	if b.cfg.Dial != nil || b.cfg.Proxy != "" {
		return ""
	}
	in := b.networks()
	if len(in) == 0 {
		return "this program is in no private network of Fly: it has no address in " + fly6PN.String()
	}
	ip, err := netip.ParseAddr(m.PrivateIP)
	if err != nil || !fly6PN.Contains(ip) || slices.Contains(in, networkOf(ip)) {
		return ""
	}
	return fmt.Sprintf("this program is in the private network %v, and the app %s in %v", in[0], b.cfg.App, networkOf(ip))
}
