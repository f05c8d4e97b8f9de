package cases

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// probe is a set of listeners of the suite: what a sandbox without a network must not reach, and
// one with a network can. It notes the beginning of everything that reaches it, and answers.
type probe struct {
	kind string // "tcp" or "udp"
	addr []netip.AddrPort

	mu    sync.Mutex
	heard []call
}

// call is the beginning of what somebody sent to a listener.
type call struct {
	to   netip.AddrPort
	data string
}

// maxCall bounds what is noted of a call, and maxCalls how many: sandboxes are hostile.
const (
	maxCall  = 1 << 10
	maxCalls = 1000
)

// listen opens listeners on addresses of this machine, each on a port of its own, until the end of
// the case. All of them are addresses that this process reaches: what the suite cannot reach proves
// nothing.
//
// The loopback addresses are what a sandbox that shares the network of the host would reach. One
// with a network of its own reaches the host by its other addresses, if at all; wide adds those.
func (t *T) listen(kind string, wide bool) *probe {
	p := &probe{kind: kind}
	for _, ip := range hostAddresses(wide) {
		at := netip.AddrPortFrom(ip, 0)
		if kind == "udp" {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			if err != nil {
				continue // the system does not have this family, or the address is not ready
			}
			t.hear(func() { p.answerDatagrams(c) }, c.Close)
			p.addr = append(p.addr, c.LocalAddr().(*net.UDPAddr).AddrPort())
			continue
		}
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			continue
		}
		t.hear(func() { p.answerConnections(l) }, l.Close)
		p.addr = append(p.addr, l.Addr().(*net.TCPAddr).AddrPort())
	}
	p.addr = slices.DeleteFunc(p.addr, func(a netip.AddrPort) bool { return !p.reached(a) })
	p.forget()
	return p
}

// hear runs the loop of a listener until the end of the case.
func (t *T) hear(loop func(), stop func() error) {
	var wg sync.WaitGroup
	wg.Go(loop)
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
}

// hostAddresses returns the addresses of this machine that listeners can use: loopback first, then,
// if wide, those of its interfaces. Link-local ones need the name of an interface, which means
// nothing in a sandbox.
func hostAddresses(wide bool) []netip.Addr {
	ips := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	if !wide {
		return ips
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ips
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			ip, ok := netip.AddrFromSlice(n.IP)
			if ip = ip.Unmap(); ok && ip.IsGlobalUnicast() && !slices.Contains(ips, ip) {
				ips = append(ips, ip)
			}
		}
	}
	return ips
}

// answerConnections answers every connection. The greeting fits both a plain client and one of
// HTTP.
func (p *probe) answerConnections(l *net.TCPListener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			to := c.LocalAddr().(*net.TCPAddr).AddrPort()
			var data []byte
			buf := make([]byte, maxCall)
			for len(data) < maxCall && !bytes.ContainsRune(data, '\n') {
				n, err := c.Read(buf[:maxCall-len(data)])
				data = append(data, buf[:n]...)
				if err != nil {
					break
				}
			}
			p.note(to, data)
			c.Write([]byte("HTTP/1.1 200 OK\r\nConnection: close\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 2\r\n\r\nok"))
		})
	}
}

// answerDatagrams sends every datagram back, which for a DNS query is an answer of a kind.
func (p *probe) answerDatagrams(c *net.UDPConn) {
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	buf := make([]byte, maxCall)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a datagram that was too long, or an answer that was not received
		}
		p.note(to, buf[:n])
		c.WriteToUDPAddrPort(buf[:n], from)
	}
}

func (p *probe) note(to netip.AddrPort, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heard) < maxCalls {
		p.heard = append(p.heard, call{to, string(data)})
	}
}

func (p *probe) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = nil
}

// calls returns what has reached the listeners, quoted for people.
func (p *probe) calls() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.heard {
		all = append(all, c.to.String()+": "+excerpt(c.data))
	}
	return all
}

// by returns the addresses at which a token was heard.
func (p *probe) by(token string) (at []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.heard {
		if ip := c.to.Addr().Unmap(); strings.Contains(c.data, token) && !slices.Contains(at, ip) {
			at = append(at, ip)
		}
	}
	return at
}

// reached reports whether this process reaches a listener: the control without which silence would
// prove nothing.
func (p *probe) reached(a netip.AddrPort) bool {
	c, err := net.DialTimeout(p.kind, a.String(), 5*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("control\n")); err != nil {
		return false
	}
	n, _ := c.Read(make([]byte, 1))
	return n == 1 && slices.Contains(p.by("control"), a.Addr().Unmap())
}

// only keeps the listeners of a family.
func (p *probe) only(v6 bool) {
	p.addr = slices.DeleteFunc(p.addr, func(a netip.AddrPort) bool { return a.Addr().Is6() != v6 })
}

// addresses returns where the listeners are, as programs take it.
func (p *probe) addresses() (all []string) {
	for _, a := range p.addr {
		all = append(all, a.String())
	}
	return all
}

// wide says whether a sandbox may have a network of its own, so that it would reach the host by
// other addresses than loopback.
func (t *T) wide() bool {
	i := t.Executor().Info().Capabilities.Isolation
	return i != executor.IsolationProcess && i != executor.IsolationWasm
}
