package flymachines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/runner"
)

// pipes is a listener without a network, so that a test has time of its own.
type pipes struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

var bubbles atomic.Int64

// A route whose first backend is Fly with an API that is down leads to the second one within seconds, however it is down. What was never
// sent is not searched for, and what may have been made is an error of Close, once and of its own kind.
func TestFallBack(t *testing.T) {
	t.Setenv("FLY_TEST_TOKEN", "fm2_secret")
	refuse := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
	}
	for name, c := range map[string]struct {
		dial   func(ctx context.Context, network, address string) (net.Conn, error)
		answer http.HandlerFunc
		within time.Duration
		left   bool // a Machine may be left
	}{
		"refused": {dial: refuse, within: 2 * time.Second},
		"silent":  {dial: silent, within: 20 * time.Second},
		"broken":  {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, within: 15 * time.Second, left: true},
		"hangs":   {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, within: 30 * time.Second, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var searches atomic.Int64
				at := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Query().Has("metadata." + metadataID) {
						searches.Add(1)
					}
					c.answer(w, r)
				})}
				var serving sync.WaitGroup
				serving.Go(func() { _ = srv.Serve(at) })
				defer serving.Wait()
				defer srv.Close()
				if c.dial == nil {
					c.dial = at.dial
				}
				reg := backends.NewRegistry(
					driver.NewFactory(Type, func(ctx context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
						d, err := newBackend(ctx, env, cfg)
						if err != nil {
							return nil, err
						}
						d.api.http.DialContext = c.dial
						return runner.Open(env, d, d.options())
					}, nil),
					driver.NewFactory(fake.Type, func(_ context.Context, env driver.Env, _ struct{}) (executor.Executor, error) {
						return fake.New(fake.Options{}).Open(env)
					}, nil),
				)
				// The rates of an app belong to the process, and a Close that fails keeps them: no two bubbles have them in common.
				cfg, err := backends.Parse(fmt.Appendf(nil, `
backends:
  cloud: {type: flymachines, app: sandboxes, token: {env: FLY_TEST_TOKEN}, api: "http://127.0.0.1:1/%d"}
  local: {type: fake}
routes:
  - {name: all, split: [{backend: cloud, weight: 1}], fallback: [local]}`, bubbles.Add(1)))
				if err != nil {
					t.Fatal(err)
				}
				b, err := backends.Open(t.Context(), driver.Env{Owner: "me"}, reg, cfg)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				s, err := b.Create(t.Context(), executor.Spec{})
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); s.Info().Handle.Backend != "local" || took > c.within {
					t.Errorf("got a session on %s after %v, want local within %v", s.Info().Handle.Backend, took, c.within)
				}
				if !c.left && searches.Load() > 0 {
					t.Errorf("got %d searches for what was never sent", searches.Load())
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				err = b.Close()
				if !c.left && err != nil || c.left && !errors.Is(err, executor.ErrUnavailable) {
					t.Errorf("Close: got %v, want unavailable: %t", err, c.left)
				}
				if err != nil && (strings.Count(err.Error(), "close: ") != 1 || strings.Count(err.Error(), executor.ErrUnavailable.Error()) != 1) {
					t.Errorf("Close: got %v, want each word once", err)
				}
			})
		})
	}
}
