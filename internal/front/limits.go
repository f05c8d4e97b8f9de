package front

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// The defaults of Limits.
const (
	DefaultConnections = 4096
	DefaultPerAddress  = 128
)

// Limits bound the connections of a listener.
type Limits struct {
	// Connections is the largest number of connections. Further ones wait until one ends.
	Connections int
	// PerAddress is the largest number of connections of an address, or of a /64 network of IPv6,
	// whose clients have not shown a key. Further ones are closed. Unix sockets have no addresses.
	PerAddress int
	// Proxies are the networks of proxies, which PerAddress does not bind.
	Proxies []netip.Prefix
	// Log gets at most one message in a minute about a limit that was reached.
	Log *slog.Logger
}

// ParseProxy reads an address or a network, such as 10.1.0.7 or 10.1.0.0/16.
func ParseProxy(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no address and no network; want one such as 10.1.0.7 or 10.1.0.0/16", text)
	}
	return a.Prefix(a.BitLen())
}

// Listener is a net.Listener with Limits.
type Listener struct {
	net.Listener
	limits *Limits
	slots  chan struct{}
	closed chan struct{}
	close  sync.Once

	mu     sync.Mutex
	of     map[netip.Prefix]int // connections without a key
	logged time.Time
}

// Listen returns l with limits.
func (lim *Limits) Listen(l net.Listener) *Listener {
	return &Listener{Listener: l, limits: lim, slots: make(chan struct{}, lim.Connections), closed: make(chan struct{}), of: map[netip.Prefix]int{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		default:
			l.warn("as many connections as it can have; more wait", "connections", l.limits.Connections)
			select {
			case l.slots <- struct{}{}:
			case <-l.closed:
				return nil, net.ErrClosed
			}
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		k := &counted{Conn: c, l: l, from: l.limits.network(c.RemoteAddr())}
		if l.enter(k.from) {
			return k, nil
		}
		l.warn("too many connections without a key from an address; more are closed", "address", k.from, "connections", l.limits.PerAddress)
		k.from = netip.Prefix{}
		_ = k.Close()
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// network returns what a connection counts for. The zero value: for nothing.
func (lim *Limits) network(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil { // of a Unix socket
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range lim.Proxies {
		if p.Contains(ip) {
			return netip.Prefix{}
		}
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the number fits
	return p
}

func (l *Listener) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !from.IsValid() {
		return true
	}
	if l.of[from] >= l.limits.PerAddress {
		return false
	}
	l.of[from]++
	return true
}

func (l *Listener) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[from]--; l.of[from] <= 0 {
		delete(l.of, from)
	}
}

func (l *Listener) warn(message string, args ...any) {
	l.mu.Lock()
	due := time.Since(l.logged) >= time.Minute
	if due {
		l.logged = time.Now()
	}
	l.mu.Unlock()
	if due {
		l.limits.Log.Warn(message, args...)
	}
}

// counted is a connection that a Listener counts.
type counted struct {
	net.Conn
	l     *Listener
	from  netip.Prefix
	known sync.Once // it no longer counts for its address
	close sync.Once
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.close.Do(func() {
		c.admit()
		<-c.l.slots
	})
	return c.Conn.Close()
}

// CloseWrite closes the direction to the client.
func (c *counted) CloseWrite() error { return conn{c.Conn}.CloseWrite() }

func (c *counted) admit() {
	c.known.Do(func() {
		if c.from.IsValid() {
			c.l.leave(c.from)
		}
	})
}

type connKey struct{}

// withConn lets Admit find the connection of a request.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// Admit says that the client of a request has shown a key. Its connection then no longer counts for
// its address. ctx is that of the request.
func Admit(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*counted); ok {
		c.admit()
	}
}

const (
	// headerTime is how long the header of a request may take to arrive.
	headerTime = 10 * time.Second
	// IdleTime is how long a connection waits for its next request. Load balancers close theirs
	// after ten minutes at most, and a connection must not end when they use it.
	IdleTime = 11 * time.Minute
)

// Server returns a server of h whose connections end in bounded time, also before their first
// request. Its listener should have Limits.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ConnContext: withConn, MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: headerTime, IdleTimeout: IdleTime, WriteTimeout: WriteTime, // of what net/http itself answers; see Bounded
	}
}
