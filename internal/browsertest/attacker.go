package browsertest

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// Names of the attacker lead to the first address, and the name last to the second, so that what a
// test asks for itself is counted apart. Nothing else of a test uses them.
const (
	address     = "127.0.0.77"
	addressLast = "127.0.0.78"
)

// Attacker is a server that has every name below attacker.test. It answers nothing: a connection is
// enough to tell it what is in a name, and so is a question to a DNS server.
type Attacker struct {
	testing.TB
	port string
	last chan struct{} // a connection to the name last

	mu    sync.Mutex
	names []*string // of connections
}

// Listen starts the server of an attacker. It stops when the test ends.
func Listen(t testing.TB) *Attacker {
	t.Helper()
	a := &Attacker{TB: t, last: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait) // after both are closed
	listen := func(at string, take func(net.Conn)) {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		_, a.port, _ = net.SplitHostPort(l.Addr().String())
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // it is closed
				}
				wg.Go(func() {
					defer c.Close()
					take(c)
				})
			}
		})
	}
	listen(net.JoinHostPort(address, "0"), a.take)
	listen(net.JoinHostPort(addressLast, a.port), func(net.Conn) { a.end() })
	return a
}

// end says that the name last was reached.
func (a *Attacker) end() {
	select {
	case a.last <- struct{}{}:
	default:
	}
}

// Host returns the host of a name of the attacker, with the port of its server.
func (a *Attacker) Host(name string) string { return name + ".attacker.test:" + a.port }

var nameOfAttacker = regexp.MustCompile(`([a-z0-9-]+)\.attacker\.test`)

// take counts a connection by the name in its first bytes, of TLS or of HTTP. One that was opened
// ahead has none.
func (a *Attacker) take(c net.Conn) {
	name := "a connection"
	a.mu.Lock()
	a.names = append(a.names, &name)
	a.mu.Unlock()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	var head []byte
	for b := make([]byte, 1<<12); len(head) < 1<<16; {
		n, err := c.Read(b)
		head = append(head, b[:n]...)
		if m := nameOfAttacker.FindSubmatch(head); m != nil {
			a.mu.Lock()
			name = string(m[1])
			a.mu.Unlock()
			if string(m[1]) == "last" { // in a browser that has one address for all names
				a.end()
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// Open opens a page in Chromium, in which names of the attacker lead to its server.
func (a *Attacker) Open(url string) *Page {
	a.Helper()
	p := open(a.TB, url, fmt.Sprintf("MAP last.attacker.test %s, MAP *.attacker.test %s, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE %[1]s, EXCLUDE %[2]s", addressLast, address))
	p.Until("location.href !== 'about:blank' && document.readyState === 'complete'")
	return p
}

// A Browser shows a page.
type Browser interface {
	testing.TB
	// Eval returns the value of an expression as text.
	Eval(expression string) string
	// asked ends the browser and returns what it has asked a DNS server for, but for the name last.
	asked() []string
}

// Reached ends a browser and returns the names of the attacker that its page has connected to or
// asked a DNS server for. Before that, the page itself asks for a connection, as a link would: what
// was begun before has had its turn when that arrives.
func (a *Attacker) Reached(b Browser) (names []string) {
	a.Helper()
	select {
	case <-a.last: // of another browser
	default:
	}
	b.Eval(fmt.Sprintf("document.head.append(Object.assign(document.createElement('link'), {rel: 'preconnect', href: 'https://%s'}))", a.Host("last")))
	select {
	case <-a.last:
	case <-time.After(time.Minute):
		a.Fatal("the page cannot connect: the test would find nothing")
	}
	for _, name := range b.asked() {
		names = append(names, "DNS: "+name)
	}
	names = append(names, a.Names()...)
	a.mu.Lock()
	a.names = nil
	a.mu.Unlock()
	return names
}

// Names returns the names that were connected to, but for the name last.
func (a *Attacker) Names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, name := range a.names {
		if *name != "last" {
			names = append(names, *name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
