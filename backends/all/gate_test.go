package all_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// gate is a way to a service that can be shut.
type gate struct {
	URL string

	to string
	l  net.Listener
	wg sync.WaitGroup

	mu   sync.Mutex
	shut bool
	open map[net.Conn]bool
}

// newGate opens a gate to the service at url until the test ends.
func newGate(t testing.TB, url string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{URL: "http://" + l.Addr().String(), to: strings.TrimPrefix(url, "http://"), l: l, open: map[net.Conn]bool{}}
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

func (g *gate) enter(conns ...net.Conn) bool {
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

func (g *gate) leave(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(g.open, c)
	}
}

func (g *gate) end() {
	for c := range g.open {
		c.Close()
	}
	clear(g.open)
}

// Cut ends all connections, and those to come, until Mend.
func (g *gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	g.end()
}

// Mend lets everybody through.
func (g *gate) Mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}
