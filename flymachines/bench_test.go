package flymachines

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// BenchmarkWarmRun is one expression in a session. The metrics are medians: ready of one request to
// the runner and its answer, the least that any run can take; raw of the exchange with the runner
// alone; and over of what the contract adds to that. They are measured in turn, so that whatever
// else the machine does is in all of them.
func BenchmarkWarmRun(b *testing.B) {
	w := newWorld(b)
	s := create(b, w.open(b, plain), executor.Spec{})
	var m *fly.Machine
	if !executor.As(s, &m) {
		b.Fatal("no Machine")
	}
	d, err := newBackend(b.Context(), driverEnv(w), w.config())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	secret, err := d.secretOf(s.Info().Handle.Session)
	if err != nil {
		b.Fatal(err)
	}
	e := d.endpoint(m, secret, d.cfg.port())
	var took [2][]time.Duration
	for b.Loop() {
		for i, f := range []func() error{
			func() error { return e.Ready(b.Context()) },
			func() error {
				_, err := s.Run(b.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil)
				return err
			},
		} {
			begin := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begin))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2])
	}
	ready, session := median(took[0]), median(took[1])
	b.ReportMetric(ready, "ns/ready")
	b.ReportMetric(session, "ns/op") // of the session alone
}

// BenchmarkCold is from the call of Create to the first result, against a Machine of the same image
// up to the first byte that a Python in it has sent, by turns.
func BenchmarkCold(b *testing.B) {
	const hello = "import socket\ns = socket.create_server(('::', %d), family=socket.AF_INET6, dualstack_ipv6=True)\nwhile True: s.accept()[0].sendall(b'x')"
	w := newWorld(b)
	box := w.open(b, plain)
	d, err := newBackend(b.Context(), driverEnv(w), w.config())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	session := func() (time.Duration, error) {
		begin := time.Now()
		s, err := box.Create(b.Context(), executor.Spec{})
		if err != nil {
			return 0, err
		}
		_, err = s.Run(b.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil)
		took := time.Since(begin)
		return took, errors.Join(err, s.Close())
	}
	raw := func() (time.Duration, error) {
		begin, id := time.Now(), strings.ToLower(rand.Text())
		in, _, err := d.launch(&runner.Start{Create: &driver.Create{ID: id}})
		if err != nil {
			return 0, err
		}
		in.Config.Files, in.Config.Init.Exec = nil, []string{python, "-I", "-S", "-c", fmt.Sprintf(hello, d.cfg.port())}
		m, err := d.make(b.Context(), in, id)
		if err != nil {
			return 0, err
		}
		if m, err = d.up(b.Context(), m); err != nil {
			return 0, err
		}
		heard := func() error {
			c, err := w.DialContext(b.Context(), "tcp", net.JoinHostPort(m.PrivateIP, strconv.Itoa(d.cfg.port())))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = io.ReadFull(c, make([]byte, 1))
			return err
		}
		for err = heard(); err != nil && time.Since(begin) < time.Minute; err = heard() {
			time.Sleep(time.Millisecond) // a poll
		}
		took := time.Since(begin)
		return took, errors.Join(err, d.api.destroy(b.Context(), m.ID))
	}
	const pairs = 9 // for a median that means something, however short the benchmark is
	var took [2][]time.Duration
	turn := func() {
		for i, f := range []func() (time.Duration, error){session, raw} {
			d, err := f()
			if err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], d)
		}
	}
	turn()
	clear(took[:]) // the first session of a backend compiles the runner
	for b.Loop() {
		for range pairs {
			turn()
		}
	}
	b.ReportMetric(0, "ns/op") // of both with their ends: says nothing
	for i, unit := range []string{"ms-cold", "ms-raw"} {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2].Seconds()*1e3, unit)
	}
}
