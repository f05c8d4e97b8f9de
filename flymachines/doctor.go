package flymachines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// Doctor examines what the backend needs: the token, the app, what else is in it, the way to its Machines. It changes nothing, so it
// starts no Machine.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	if _, err := cfg.Token.Value(); err != nil {
		return []driver.Check{{Name: "token", Detail: err.Error(), Fix: "fly tokens create deploy --app " + cfg.App + ", and put it where token says"}}
	}
	b, err := newBackend(ctx, env, cfg)
	if err != nil {
		return []driver.Check{{Name: "client", Detail: err.Error(), Fix: "correct the configuration of this backend"}}
	}
	defer b.Close()
	return b.examine(ctx)
}

func (b *backend) examine(ctx context.Context) []driver.Check {
	cfg := &b.cfg
	at := cmp.Or(cfg.API, PublicAPI)
	var ms []*fly.Machine
	err := b.api.repeat(ctx, actionList, cfg.App, func(ctx context.Context) (err error) {
		ms, err = b.api.flaps.List(ctx, cfg.App, "")
		return err
	})
	if err != nil {
		return []driver.Check{{Name: "app " + cfg.App, Detail: err.Error(), Fix: b.fixOfAPI(at, err)}}
	}
	checks := []driver.Check{{Name: "app " + cfg.App, OK: true, Detail: fmt.Sprintf("%d Machines, at %s", len(ms), at)}}
	others := 0
	for _, m := range ms {
		if _, err := sessionInfo(m); err != nil && m.GetConfig() != nil {
			others++
		}
	}
	alone := driver.Check{Name: "nothing else in the app", OK: others == 0, Detail: "only sessions"}
	if others > 0 {
		alone.Detail = fmt.Sprintf("%d Machines are no sessions: code with a network reaches them", others)
		alone.Fix = "use an app for sandboxes alone, with a network of its own"
	}
	return append(append(checks, alone, b.examineWay(ctx, ms)), cfg.sources().Examine()...)
}

// fixOfAPI says what to do about an API that has not listed the Machines of the app.
func (b *backend) fixOfAPI(at string, err error) string {
	var e *APIError
	var name *net.DNSError
	switch {
	case errors.As(err, &e) && e.class == classAuth:
		return "the token is not for this app, or has expired: fly tokens create deploy --app " + b.cfg.App
	case errors.As(err, &e) && e.class == classMissing:
		return "fly apps create " + b.cfg.App + " --network " + b.cfg.App
	case errors.As(err, &name) && name.IsNotFound && strings.HasSuffix(name.Name, ".internal"):
		return name.Name + " has an address in private networks of Fly only: elsewhere leave api out, which means " + PublicAPI
	}
	return "make sure that " + at + " can be reached from here"
}

// Bounds of what is tried: one Machine may just be starting or ending.
const (
	wayTimeout  = 10 * time.Second
	wayMachines = 3
)

// examineWay tries the way to the Machines of the app as far as it goes without making one: to one that is there, or else to the Fly Proxy
// or out of this program.
func (b *backend) examineWay(ctx context.Context, ms []*fly.Machine) driver.Check {
	ctx, cancel := context.WithTimeout(ctx, wayTimeout)
	defer cancel()
	c := driver.Check{Name: "way to Machines"}
	known, tried := &fly.Machine{}, 0 // one that tells of the network of the app
	for _, m := range ms {
		if m.PrivateIP != "" {
			known = m
		}
		r, err := specOf(m)
		if err != nil || m.State != fly.MachineStateStarted || m.PrivateIP == "" || b.cfg.Proxy != "" && !offers(m, b.cfg.service()) || tried == wayMachines {
			continue
		}
		tried++
		// Without the secret, which is its holder's: that the runner refuses it says as much.
		e := b.endpoint(m, "", r.Port)
		err = e.Ready(ctx)
		var status *runner.StatusError
		if c.OK = errors.As(err, &status) && status.Status == http.StatusUnauthorized; c.OK {
			c.Detail, c.Fix = fmt.Sprintf("the runner of Machine %s answers at %s", m.ID, e.URL), ""
			return c
		}
		c.Detail, c.Fix = fmt.Sprintf("the runner of Machine %s is not reached at %s: %v", m.ID, e.URL, err), b.advice(m)
	}
	switch {
	case tried > 0:
		return c
	case b.cfg.Proxy != "":
		return b.examineProxy(ctx)
	case b.cfg.Dial != nil:
		c.OK, c.Detail = true, "by a dialer of this program; it is tried when the app has a Machine"
		return c
	}
	if why := b.apart(known); why != "" {
		c.Detail = why
		c.Fix = "run this program on Fly in an app of the same network, or where a WireGuard peer of that network is, or set proxy: https://" + b.cfg.App + ".fly.dev"
		return c
	}
	c.OK, c.Detail = true, fmt.Sprintf("by their private addresses, from %v", b.networks()[0])
	if known.PrivateIP == "" {
		c.Detail += "; whether the app is in that network too shows when it has a Machine"
	}
	return c
}

// offers reports whether a Machine has a service.
func offers(m *fly.Machine, s fly.MachineService) bool {
	return m.GetConfig() != nil && slices.ContainsFunc(m.GetConfig().Services, func(o fly.MachineService) bool { return o.InternalPort == s.InternalPort })
}

// examineProxy tries the way to the Fly Proxy, for an app without a Machine that could answer.
func (b *backend) examineProxy(ctx context.Context) driver.Check {
	c := driver.Check{Name: "way to Machines"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.cfg.Proxy, nil)
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	allocate := "fly ips allocate-v4 --shared --app " + b.cfg.App
	if b.cfg.flycast() {
		allocate = "fly ips allocate-v6 --private --app " + b.cfg.App + ", with --network if this program is in another network than the default one"
	}
	if b.cfg.flycast() || strings.HasSuffix(req.URL.Hostname(), ".fly.dev") {
		var ips *flaps.ListIPAssignmentsResponse
		err := b.api.repeat(ctx, actionApp, b.cfg.App, func(ctx context.Context) (err error) {
			ips, err = b.api.flaps.GetIPAssignments(ctx, b.cfg.App)
			return err
		})
		none := err == nil && ips != nil && !slices.ContainsFunc(ips.IPs, func(ip flaps.IPAssignment) bool { return ip.IsFlycast() == b.cfg.flycast() })
		if none { // that a token may not ask says nothing
			c.Detail, c.Fix = "the app has no address at which the Fly Proxy answers at "+b.cfg.Proxy, allocate
			return c
		}
	}
	res, err := b.data.RoundTrip(req)
	var op *net.OpError
	switch {
	case err == nil:
		res.Body.Close()
		if c.OK = res.Header.Get("Fly-Request-Id") != ""; c.OK {
			c.Detail = "the Fly Proxy answers at " + b.cfg.Proxy
		} else {
			c.Detail, c.Fix = "what answers at "+b.cfg.Proxy+" is not the Fly Proxy: "+res.Status, "proxy is the address of the app, https://"+b.cfg.App+".fly.dev"
		}
	case hopeless(err), errors.As(err, &op) && op.Op == "dial", ctx.Err() != nil:
		c.Detail, c.Fix = err.Error(), "make sure that "+b.cfg.Proxy+" can be reached from here; if its name is not found: "+allocate
	default: // the proxy may not let in requests for an app without Machines
		c.OK, c.Detail = true, "a connection to "+b.cfg.Proxy+" comes about; whether it leads to Machines shows when the app has one"
	}
	return c
}
