package cases

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// probing calls f with a probe of a kind that is closed at its end.
func probing(t *testing.T, kind string, f func(p *probe)) {
	t.Helper()
	s := &stub{ctx: t.Context()}
	p := (&T{Engine: s}).listen(kind, false)
	defer func() {
		for _, f := range s.cleanups {
			f()
		}
	}()
	if len(p.addr) == 0 {
		t.Fatalf("%s: no address to listen on", kind)
	}
	f(p)
}

// send dials an address, sends text and returns the beginning of the answer.
func send(t *testing.T, kind, address, text string) string {
	t.Helper()
	c, err := net.DialTimeout(kind, address, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(c, text)
	buf := make([]byte, 100)
	n, _ := c.Read(buf)
	return string(buf[:n])
}

func TestProbeHears(t *testing.T) {
	for _, kind := range []string{"tcp", "udp"} {
		probing(t, kind, func(p *probe) {
			if got := p.calls(); len(got) > 0 {
				t.Errorf("%s: heard %q before anybody called: the controls must not count", kind, got)
			}
			for _, a := range p.addr {
				if got := send(t, kind, a.String(), "GET /token HTTP/1.1\r\n\r\n"); got == "" {
					t.Errorf("%s: no answer from %v", kind, a)
				}
			}
			if got := p.by("token"); len(got) != len(p.addr) {
				t.Errorf("%s: heard the token at %v, want at each of %v", kind, got, p.addr)
			}
			if got := p.by("other"); len(got) > 0 {
				t.Errorf("%s: heard at %v what nobody has said", kind, got)
			}
		})
	}
}

// TestProbeIsBounded checks that a sandbox cannot fill the memory of the suite, and that a caller
// who says nothing holds nothing up.
func TestProbeIsBounded(t *testing.T) {
	probing(t, "udp", func(p *probe) {
		for range 2 * maxCalls {
			p.note(p.addr[0], []byte("x"))
		}
		if got := len(p.calls()); got != maxCalls {
			t.Errorf("noted %d calls, want %d", got, maxCalls)
		}
	})
	probing(t, "tcp", func(p *probe) {
		silent, err := net.Dial("tcp", p.addr[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		if got := send(t, "tcp", p.addr[0].String(), "token\n"); got == "" {
			t.Errorf("no answer beside a caller who says nothing")
		}
		long := make([]byte, 2*maxCall)
		send(t, "tcp", p.addr[0].String(), string(long))
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.heard {
			if len(c.data) > maxCall {
				t.Errorf("noted %d bytes of a call, want at most %d", len(c.data), maxCall)
			}
		}
	})
}

// TestProbeFamilies checks which addresses a probe has, and that closing it ends its listeners.
func TestProbeFamilies(t *testing.T) {
	var address string
	probing(t, "tcp", func(p *probe) {
		p.only(false)
		if len(p.addr) != 1 || !p.addr[0].Addr().Is4() || !p.addr[0].Addr().IsLoopback() {
			t.Errorf("got %v, want the loopback address of IPv4", p.addr)
		}
		address = p.addr[0].String()
	})
	if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		c.Close()
		t.Errorf("the listener outlives its case")
	}
	all := hostAddresses(true)
	if !slices.Equal(all[:2], hostAddresses(false)) {
		t.Errorf("got %v, want the loopback addresses first", all)
	}
	for _, ip := range all[2:] {
		if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
			t.Errorf("%v is no address for a sandbox", ip)
		}
	}
}
