package flytest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
)

// DialContext connects to a port of a started Machine. The address is "[<private_ip>]:port" or
// "<id>.vm.<app>.internal:port". Other addresses are refused: nothing leaves the emulator. It has
// the form of net.Dialer.DialContext.
func (s *Server) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("%s: not a port", addr)
	}
	m := s.find(host)
	if m == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: no Machine of the emulator has this address", host)}
	}
	return s.dial(ctx, m, int(port))
}

// find returns the Machine that an address of the private network names.
func (s *Server) find(host string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name, found := strings.CutSuffix(host, ".internal"); found {
		id, app, _ := strings.Cut(name, ".vm.")
		if a := s.apps[app]; a != nil {
			return a.machines[id]
		}
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	for _, a := range s.apps {
		for _, m := range a.machines {
			if own, err := netip.ParseAddr(m.address); err == nil && own == ip && m.state != stateDestroyed {
				return m
			}
		}
	}
	return nil
}

// errDown says that there is nothing to connect to.
var errDown = errors.New("the Machine is not started")

// dial connects to a port of a Machine: where it is published, or else directly, which works where
// containers are on this machine.
func (s *Server) dial(ctx context.Context, m *machine, port int) (net.Conn, error) {
	s.mu.Lock()
	id, state := m.container, m.state
	s.mu.Unlock()
	if id == "" || state != stateStarted {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w, but %s", m.id, errDown, state)}
	}
	i, err := s.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	if i.Container.NetworkSettings == nil {
		return nil, fmt.Errorf("%s: the engine does not tell its address", m.id)
	}
	for _, n := range i.Container.NetworkSettings.Networks {
		if n.IPAddress.IsValid() {
			c, derr := d.DialContext(ctx, "tcp", netip.AddrPortFrom(n.IPAddress, uint16(port)).String())
			if derr == nil {
				return c, nil
			}
			err = derr
		}
	}
	for p, to := range i.Container.NetworkSettings.Ports {
		if int(p.Num()) == port && len(to) > 0 {
			return d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", to[0].HostPort))
		}
	}
	if err == nil {
		err = errDown
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: port %d: %w", m.id, port, err)}
}

// Published returns the loopback address of a port of a Machine that is published, for example
// "127.0.0.1:49153". The address changes whenever the Machine is started.
func (s *Server) Published(ctx context.Context, app, machine string, port int) (string, error) {
	s.mu.Lock()
	id := ""
	if a := s.apps[app]; a != nil && a.machines[machine] != nil {
		id = a.machines[machine].container
	}
	s.mu.Unlock()
	if id == "" {
		return "", fmt.Errorf("%s/%s: %w", app, machine, errDown)
	}
	i, err := s.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}
	if i.Container.NetworkSettings != nil {
		for p, to := range i.Container.NetworkSettings.Ports {
			if int(p.Num()) == port && len(to) > 0 {
				return net.JoinHostPort("127.0.0.1", to[0].HostPort), nil
			}
		}
	}
	return "", fmt.Errorf("%s/%s: port %d is not published", app, machine, port)
}

// Proxy returns what stands for the Fly Proxy: it passes requests on to the first service of the
// Machine that the header fly-force-instance-id names. Without that header it takes a started
// Machine of the app that the host name begins with. What asks for the Flycast address of an app,
// "http://<app>.flycast", needs an app that has one, and a service at that port without TLS.
func (s *Server) Proxy() http.Handler {
	transport := &http.Transport{
		IdleConnTimeout: 3 * time.Second, // a Machine that is killed does not always say so
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return s.DialContext(ctx, network, addr)
		},
	}
	context.AfterFunc(s.life, transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, // streams pass at once
		Transport:     transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetXForwarded(); r.Out.Host = r.In.Host },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.cfg.Log.Debug("proxy", "error", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("Fly-Force-Instance-Id")
		m, port := s.route(id, r.Host)
		if m == nil {
			// So says the proxy of an instance that is not there, or does not run.
			w.Header().Set("Fly-Request-Id", requestID())
			http.Error(w, "flytest: no started Machine with a service takes this request", http.StatusBadGateway)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Scheme, r.URL.Host = "http", net.JoinHostPort(m.id+".vm."+m.app.Name+".internal", strconv.Itoa(port))
		proxy.ServeHTTP(w, r)
	})
}

// route finds the Machine for a request to the proxy, and the port of its service.
func (s *Server) route(id, host string) (*machine, int) {
	port := 80
	if h, p, err := net.SplitHostPort(host); err == nil {
		host = h
		port, _ = strconv.Atoi(p) // or it is none that anything has
	}
	name, flycast := strings.CutSuffix(host, ".flycast")
	name, _, _ = strings.Cut(name, ".")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		for _, m := range a.machines {
			wanted := m.id == id || id == "" && a.Name == name
			if flycast && (a.Name != name || !a.flycast() || len(m.cfg.Services) == 0 || !m.cfg.Services[0].plain(port)) {
				continue
			}
			if wanted && m.state == stateStarted && len(m.cfg.Services) > 0 && !m.cordoned {
				return m, m.cfg.Services[0].InternalPort
			}
		}
	}
	return nil, 0
}

// flycast reports whether the app has an address in a private network at which the proxy answers.
// The caller holds Server.mu.
func (a *app) flycast() bool {
	return slices.ContainsFunc(a.ips, func(ip ipAssignment) bool { return strings.HasPrefix(ip.IP, "fdaa:") })
}

// plain reports whether a service takes HTTP without TLS at a port.
func (v *service) plain(port int) bool {
	return slices.ContainsFunc(v.Ports, func(p servicePort) bool { return p.Port == port && slices.Equal(p.Handlers, []string{"http"}) })
}
