package attempttest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Outside is what attempts try to reach on the machine of the test.
type Outside struct {
	Vars map[string]any // variables for the code of attempts
	Seen func() int     // number of messages that arrived since the last call
}

// outsides counts the Outsides of this process, so that each listens under different names.
var outsides atomic.Int32

// NewOutside starts a listener for each way by which something could arrive.
func NewOutside(t *testing.T) *Outside {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	n := 0
	count := func() { mu.Lock(); n++; mu.Unlock() }
	accept := func(l net.Listener, err error) string {
		t.Helper()
		must(t, err)
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				count()
				io.WriteString(c, "reached")
				c.Close()
			}
		})
		t.Cleanup(func() { l.Close() })
		return l.Addr().String()
	}
	t.Cleanup(wg.Wait) // runs last
	port := func(addr string) int {
		_, p, _ := net.SplitHostPort(addr)
		i, _ := strconv.Atoi(p)
		return i
	}
	o := &Outside{Vars: map[string]any{}}
	number := int(outsides.Add(1))
	abstract := fmt.Sprintf("execbroker-test-%d-%d", os.Getpid(), number)
	o.Vars["TCP4"] = port(accept(net.Listen("tcp4", "127.0.0.1:0")))
	o.Vars["TCP6"] = port(accept(net.Listen("tcp6", "[::1]:0")))
	accept(net.Listen("unix", "@"+abstract))
	o.Vars["ABSTRACT"] = abstract
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
	wg.Go(func() {
		b := make([]byte, 512)
		for {
			k, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			count()
			u.WriteTo(b[:k], from)
		}
	})
	t.Cleanup(func() { u.Close() })
	o.Vars["UDP4"] = port(u.LocalAddr().String())
	key := 0x45000000 | number<<16 | os.Getpid()&0xffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	o.Vars["SHM"] = key
	o.Vars["PROCESS"] = hex.EncodeToString([]byte(os.Args[0])) // encoded, so that it is not in the command line of the attempt

	o.Seen = func() int { mu.Lock(); defer mu.Unlock(); k := n; n = 0; return k }
	return o
}

// Try makes the attempts of groups in a session of a backend. Each must be stopped as the list
// says, and nothing may reach the outside.
func Try(t *testing.T, s executor.Session, backend string, groups ...string) {
	out := NewOutside(t)
	for _, g := range groups {
		t.Run(g, func(t *testing.T) {
			made := Of(g, backend)
			r, err := s.Run(t.Context(), executor.Request{Command: Command("python3", made, out.Vars)}, nil)
			must(t, err)
			words := strings.Split(strings.TrimSpace(r.Stdout.String()+r.Stderr.String()), "\n")
			if r.Reason != "" || len(words) != len(made) {
				t.Fatalf("%d attempts: got %s, %q", len(made), r.Reason, words)
			}
			for i, a := range made {
				t.Run(a.Name, func(t *testing.T) {
					if !a.IsStopped(words[i]) {
						t.Errorf("got %q, want %q", words[i], a.Stopped)
					}
				})
			}
			if n := out.Seen(); n > 0 {
				t.Errorf("%d messages came out", n)
			}
		})
	}
	if r, err := s.Run(t.Context(), executor.Request{Code: "print(6 * 7)"}, nil); err != nil || r.Stdout.String() != "42\n" {
		t.Errorf("the next run: got %+v, %v", r, err)
	}
}
