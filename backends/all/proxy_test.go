package all_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy is a connection to a service that can be cut.
type proxy struct {
	URL string

	to string
	l  net.Listener
	wg sync.WaitGroup

	mu   sync.Mutex
	shut bool
	open map[net.Conn]bool
}

// newProxy opens a proxy to the service at url until the test ends.
func newProxy(t testing.TB, url string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &proxy{URL: "http://" + l.Addr().String(), to: strings.TrimPrefix(url, "http://"), l: l, open: map[net.Conn]bool{}}
	g.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			service, err := net.Dial("tcp", g.to)
			if err != nil {
				client.Close()
				continue
			}
			if !g.enter(client, service) {
				continue
			}
			g.wg.Go(func() { io.Copy(service, client); g.leave(client, service) })
			g.wg.Go(func() { io.Copy(client, service); g.leave(client, service) })
		}
	})
	t.Cleanup(func() {
		g.l.Close()
		g.Cut()
		g.wg.Wait()
	})
	return g
}

func (g *proxy) enter(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.open[c] = true
	}
	if g.shut {
		g.end()
	}
	return !g.shut
}

func (g *proxy) leave(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(g.open, c)
	}
}

func (g *proxy) end() {
	for c := range g.open {
		c.Close()
	}
	clear(g.open)
}

// Cut ends all connections, and refuses new ones until Mend.
func (g *proxy) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	g.end()
}

// Mend accepts connections again.
func (g *proxy) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}
