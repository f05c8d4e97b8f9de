package runner

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/wire"
)

// To ask when a holder was last heard neither attaches nor wakes nor shuts out anybody, and only
// frames of holders count as contact.
func TestSinceContact(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	g := startGuest(t, host)
	for name, c := range map[string]struct {
		s       *sandbox
		connect func() io.ReadWriteCloser
	}{
		"bridge": {s, func() io.ReadWriteCloser { _, conn := bridgeTo(t, s); return conn }},
		"guest":  {g.sandbox, func() io.ReadWriteCloser { return g.Dial() }},
	} {
		t.Run(name, func(t *testing.T) {
			var last time.Duration
			ask := func() time.Duration {
				t.Helper()
				since, err := sinceContact(t.Context(), c.connect())
				if err != nil {
					t.Fatal(err)
				}
				return since
			}
			// later checks that no frame of a holder has arrived since the last question.
			later := func(what string) {
				t.Helper()
				if now := ask(); now <= last {
					t.Errorf("%s counts as contact: %v, and %v before", what, now, last)
				} else {
					last = now
				}
			}
			holder, err := join(t.Context(), c.connect(), 5)
			if err != nil {
				t.Fatal(err)
			}
			defer holder.Detach()
			before := time.Now()
			if err := holder.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			last = ask()
			if passed := time.Since(before); last > passed {
				t.Errorf("a holder was heard %v ago, and the answer is %v", passed, last)
			}
			later("a question")
			if _, err := join(t.Context(), c.connect(), 4); kindOf(err) != executor.ErrClosed {
				t.Fatalf("a lower fence: got %v", err)
			}
			later("a holder that was refused")
			if r := doWith(t.Context(), holder, executor.Request{Language: executor.Python, Code: "print(1)"}); r.stdout != "1\n" {
				t.Errorf("the holder afterwards: got %+v", r)
			}
			if err := holder.Suspend(t.Context()); err != nil {
				t.Fatal(err)
			}
			last = ask()
			later("a question")
			if !c.s.stopped(t) {
				t.Error("a question wakes a suspended sandbox")
			}
			if holder.Ping(t.Context()); !c.s.stopped(t) {
				t.Error("a holder that stays in contact wakes a suspended sandbox")
			}
		})
	}
}

// A holder that says nothing else stays in contact, if the runner may be asked.
func TestStaysInContact(t *testing.T) {
	for name, observed := range map[string]bool{"observed": true, "not-observed": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, theirs := net.Pipe()
				go func() {
					frames := wire.NewReader(theirs)
					frames.Next()
					theirs.Write(wire.Frame{Type: wire.Hello, Payload: wire.AppendValue(nil, wire.Map{"version": wire.Version})}.Append(nil))
				}()
				c, err := join(t.Context(), conn, 0)
				if err != nil {
					t.Fatal(err)
				}
				c.observed.Store(observed)
				began := time.Now()
				pings := make(chan time.Duration, 10)
				go func() {
					frames := wire.NewReader(theirs)
					for {
						f, err := frames.Next()
						if err != nil {
							return
						}
						if f.Type == wire.Ping {
							pings <- time.Since(began)
							theirs.Write(wire.Frame{Type: wire.Pong}.Append(nil))
						}
					}
				}()
				time.Sleep(50 * time.Second)
				if err := c.Ping(t.Context()); err != nil { // its own answer, and not that of another
					t.Error(err)
				}
				c.Detach()
				synctest.Wait()
				want := 1
				if observed {
					want = 3
				}
				if got := len(pings); got != want {
					t.Errorf("got %d pings, want %d", got, want)
				}
			})
		})
	}
}
