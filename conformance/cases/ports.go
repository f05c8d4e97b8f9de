package cases

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func withPorts(spec *executor.Spec) { spec.Ports = true }

// portCases are about connections from outside to servers in the sandbox.
func portCases() []Case {
	all := []Case{
		{
			ID: "echo", PerLanguage: true,
			Doc: "A connection carries bytes in both directions to a server at 127.0.0.1 or at ::1, and the end of each direction by itself.",
			Positive: func(t *T) {
				s := t.Session(withPorts)
				data := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
				for _, address := range []string{"127.0.0.1", "0.0.0.0", "::1"} {
					res := t.Run(s, t.Program("serve", "address", address))
					if address == "::1" && res.Status != executor.StatusOK {
						t.Logf("the sandbox has no IPv6: %s", describe(res))
						continue
					}
					c := t.dials(s, t.portIn(res), "echo")
					sent := make(chan error, 1)
					go func() {
						_, err := c.Write(data)
						sent <- errors.Join(err, c.CloseWrite())
					}()
					got, err := io.ReadAll(c)
					if want := string(data) + "end"; err != nil || string(got) != want {
						t.Errorf("%s: got %d bytes and %v, want the %d that were sent", address, len(got), err, len(want))
						c.Close()
					}
					t.noError(<-sent, "%s: sending", address)
				}
				half := t.dials(s, t.serves(s, "127.0.0.1"), "half")
				if got, err := io.ReadAll(half); err != nil || string(got) != "half" {
					t.Errorf("a server that ends its direction: got %q, %v", got, err)
				}
				t.noError(errorOf(half.Write([]byte("more"))), "the other direction")
				if got, err := io.ReadAll(t.dials(s, t.serves(s, "127.0.0.1"), "reset")); err == nil {
					t.Errorf("a connection that is reset looks like one that has ended: got %q", got)
				}
			},
		},
		{
			ID:  "asked",
			Doc: "Without Spec.Ports no port is reached, and the session does not have the feature, also for who attaches.",
			Positive: fresh(func(t *T, s executor.Session) {
				port := t.serves(s, "127.0.0.1")
				holders := []executor.Session{s}
				if t.Has(executor.FeatureAttach) {
					holders = append(holders, t.attaches(t.Open(nil), s.Info().Handle))
				}
				for _, h := range holders {
					if h.Info().Capabilities.Has(executor.FeaturePorts) {
						t.Errorf("the session has the feature, and has not asked for it")
					}
					t.Refused("dial", errorOf(h.Dial(t.Context(), port)), executor.FeaturePorts)
				}
				if !t.Has(executor.FeatureAttach) {
					return
				}
				asked := t.Session(withPorts)
				t.echoes(t.attaches(t.Open(nil), asked.Info().Handle), t.serves(asked, "127.0.0.1"))
			}),
		},
		{
			ID:  "addresses",
			Doc: "Only servers at 127.0.0.1 and ::1 of the sandbox's own network are reached: no other address, no server of this machine or of another sandbox, and no port that there is not.",
			Positive: func(t *T) {
				s, other := t.Session(withPorts), t.Session(withPorts)
				here, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Abort("listening: %v", err)
				}
				defer here.Close()
				for what, port := range map[string]int{
					"127.0.0.2": t.serves(s, "127.0.0.2"), "this machine": here.Addr().(*net.TCPAddr).Port, "another sandbox": t.serves(other, "127.0.0.1"),
				} {
					if c, err := s.Dial(t.Context(), port); err == nil {
						c.Close()
						t.Errorf("a server of %s was reached", what)
					} else {
						t.isNo("a server of "+what, err, executor.ErrNoServer)
					}
				}
				for _, port := range []int64{-1, 0, 1 << 16, 1<<32 + 80} {
					if int64(int(port)) != port {
						continue // int has 32 bits here
					}
					t.isNo(fmt.Sprintf("port %d", port), errorOf(s.Dial(t.Context(), int(port))), executor.ErrInvalid)
				}
			},
		},
		{
			ID: "own", Programs: []string{"listening"},
			Doc: "No port is reached at which something listens before any code has run: those are the sandbox's own, and those of its provider.",
			Positive: func(t *T) {
				s := t.Session(withPorts, func(spec *executor.Spec) {
					if t.Has(executor.FeatureNetworkFull) {
						spec.Network = executor.NetworkPolicy{Mode: executor.NetworkFull}
					}
				})
				for word := range strings.FieldsSeq(t.stdout(s, t.Program("listening"))) {
					port, err := strconv.Atoi(word)
					if err != nil {
						t.Abort("the program has printed %q", word)
					}
					if c, err := s.Dial(t.Context(), port); err == nil {
						c.Close()
						t.Errorf("port %d was reached", port)
					} else if !errors.Is(err, executor.ErrNoServer) { // which listens elsewhere
						t.isNo(fmt.Sprintf("port %d", port), err, executor.ErrDenied)
					}
				}
			},
		},
		{
			ID: "hostile", Programs: []string{"serve", "print"}, Bound: 2 * time.Minute,
			Doc: "A server that sends without an end or never answers holds nobody up, and a connection ends at its bound of bytes.",
			Positive: func(t *T) {
				s := t.Session(withPorts)
				port := t.serves(s, "127.0.0.1")
				mute, unread, flood := t.dials(s, port, "mute"), t.dials(s, port, "flood"), t.dials(s, port, "flood")
				read := make(chan error, 1)
				go func() {
					_, err := mute.Read(make([]byte, 1))
					read <- err
				}()
				n, err := io.Copy(io.Discard, flood)
				if err == nil || n > executor.MaxForwardBytes || n < executor.MaxForwardBytes/2 {
					t.Errorf("a stream without an end: got %d bytes and %v, want an error at %d", n, err, executor.MaxForwardBytes)
				}
				t.says(s, t.Program("print", "text", "free"), "free")
				start := time.Now()
				mute.Close()
				unread.Close()
				if err := <-read; !errors.Is(err, net.ErrClosed) {
					t.Errorf("a read that Close ends: got %v, want net.ErrClosed", err)
				}
				t.prompt("closing", start, 0)
			},
		},
		{
			ID:  "many",
			Doc: "A holder has a bounded number of connections, and room again when one is closed.",
			Positive: func(t *T) {
				s := t.Session(withPorts)
				port := t.serves(s, "127.0.0.1")
				var conns []executor.Conn
				for range executor.MaxForwards {
					conns = append(conns, t.dials(s, port, "echo"))
				}
				t.isNo("one connection more", errorOf(s.Dial(t.Context(), port)), executor.ErrExhausted)
				conns[0].Close()
				t.echoes(s, port)
			},
		},
		{
			ID:  "closed",
			Doc: "Connections end with their session, and nothing is connected to after it.",
			Positive: func(t *T) {
				s := t.Session(withPorts)
				port := t.serves(s, "127.0.0.1")
				c := t.dials(s, port, "mute")
				t.noError(s.Close(), "close")
				if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || err == io.EOF {
					t.Errorf("reading after the session was closed: got %d, %v", n, err)
				}
				t.isNo("dial", errorOf(s.Dial(t.Context(), port)), executor.ErrClosed)
			},
		},
		{
			ID: "idle", Programs: []string{"serve"},
			Doc: "What a server sends does not keep its sandbox alive, and what it is sent does not beyond the maximum life.",
			Positive: func(t *T) {
				used := t.Session(withPorts, func(spec *executor.Spec) {
					spec.MaxLife = 20 * time.Second                            // enough to dial it on a busy machine
					if t.Executor().Info().Capabilities.MaxRun.WallTime == 0 { // else it has to fit into what is left
						spec.Run.WallTime = executor.NoLimit
					}
				})
				half := t.dials(used, t.serves(used, "127.0.0.1"), "half")
				idle := t.Session(withPorts, idleFor(6*time.Second))
				flood := t.dials(idle, t.serves(idle, "127.0.0.1"), "flood")
				// A little at a time, so that the bound of bytes is not what ends them.
				piece := make([]byte, 1<<10)
				fed, heard := t.often(func() error { _, err := half.Write([]byte("x")); return err }), t.often(func() error { _, err := flood.Read(piece); return err })
				t.Eventually(9*time.Second, "the sandbox that is only written by its server ends", func() bool { return t.gone(idle) })
				t.Eventually(25*time.Second, "the sandbox that is used ends at its maximum life", func() bool { return t.gone(used) })
				<-fed
				<-heard
			},
		},
	}
	for i := range all {
		all[i].ID, all[i].Feature = "ports/"+all[i].ID, executor.FeaturePorts
		if all[i].Programs == nil {
			all[i].Programs = []string{"serve"}
		}
		all[i].Negative = refusing("ports", withPorts, executor.FeaturePorts)
	}
	return all
}

// serves starts a server of the program "serve", and returns its port.
func (t *T) serves(s executor.Session, address string) int {
	return t.portIn(t.ok(s, t.Program("serve", "address", address)))
}

func (t *T) portIn(res *executor.Result) int {
	port, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if err != nil {
		t.Fatalf("the server did not start: %s, stdout %s", describe(res), excerpt(string(res.Stdout)))
	}
	return port
}

// dials connects to a server of that program, and says what it is to do.
func (t *T) dials(s executor.Session, port int, what string) executor.Conn {
	c, err := s.Dial(t.Context(), port)
	t.must(err, "dial")
	t.Cleanup(func() { c.Close() })
	t.must(errorOf(io.WriteString(c, what+"\n")), "writing to a server")
	return c
}

// often calls f every few milliseconds until it fails. The channel is closed then.
func (t *T) often(f func() error) <-chan struct{} {
	done := make(chan struct{})
	go func() { // whoever calls this waits for it
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for f() == nil {
			<-tick.C
		}
	}()
	return done
}

// echoes checks that a server of that program answers.
func (t *T) echoes(s executor.Session, port int) {
	c := t.dials(s, port, "echo")
	defer c.Close()
	_, werr := io.WriteString(c, "hello")
	werr = errors.Join(werr, c.CloseWrite())
	if got, err := io.ReadAll(c); string(got) != "helloend" || err != nil || werr != nil {
		t.Errorf("got %q, %v and %v, want an echo", got, err, werr)
	}
}
