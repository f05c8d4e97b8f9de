package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
)

// Server is what runs a store apart from the processes that use it. Its methods fail the test that
// it was made for.
type Server interface {
	Kill()   // ends it at once, as a crash does
	Start()  // starts it again, with what it had acknowledged
	Freeze() // stops it without ending its connections
	Thaw()   // ends Freeze
}

// wrong is a password that no server takes.
const wrong = "not-the-password"

// TestServer checks what a store does when its server fails. It calls open with a password, or with
// "" for the right one.
func TestServer(t *testing.T, srv Server, open func(ctx context.Context, password string) (sessions.Store, error)) {
	s, err := open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("wrong-password", func(t *testing.T) {
		if _, err := open(t.Context(), wrong); err == nil || strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want an error that does not repeat the password", err)
		}
	})
	t.Run("clock", func(t *testing.T) {
		c, ok := s.(sessions.Clock)
		if !ok {
			t.Fatal("the store does not tell the clock of the server")
		}
		if _, err := c.Now(t.Context()); err != nil {
			t.Error(err)
		}
		if ahead, err := sessions.ClockAhead(t.Context(), s); err != nil || ahead.Abs() > time.Second { // both have the clock of this machine
			t.Errorf("got %v, %v", ahead, err)
		}
	})
	t.Run("away", func(t *testing.T) { away(t, srv, s) })
	t.Run("frozen", func(t *testing.T) { frozen(t, srv, s) })
	t.Run("killed-among-writes", func(t *testing.T) { killed(t, srv, s) })
}

// away: calls fail while there is no server, nothing that was acknowledged is lost, and the same
// Store goes on when it is back.
func away(t *testing.T, srv Server, s sessions.Store) {
	rev := put(t, s, "away", sessions.Entry{Value: []byte("kept")})
	srv.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if e, err := s.Get(ctx, "away"); err == nil {
		t.Errorf("get without a server: got %+v", e)
	}
	if _, err := s.Put(ctx, "new", sessions.Entry{}); err == nil || errors.Is(err, sessions.ErrConflict) {
		t.Errorf("put without a server: got %v", err)
	}
	srv.Start()
	e := recovered(t, s, "away")
	if string(e.Value) != "kept" || e.Rev != rev {
		t.Errorf("got %+v, want revision %s", e, rev)
	}
}

// recovered is get with a Store that may still notice that its connections are gone.
func recovered(t *testing.T, s sessions.Store, key string) (e sessions.Entry) {
	t.Helper()
	until(t, "the store recovers", func() (err error) {
		e, err = s.Get(t.Context(), key)
		return err
	})
	return e
}

// until waits until f returns nil.
func until(t *testing.T, what string, f func() error) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	deadline := time.Now().Add(2 * time.Minute)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-poll.C
	}
}

// frozen: a call ends with its context, however long the server says nothing.
func frozen(t *testing.T, srv Server, s sessions.Store) {
	rev := put(t, s, "frozen", sessions.Entry{Value: []byte("1")})
	srv.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, gerr := s.Get(ctx, "frozen")
	_, perr := s.Put(ctx, "frozen", sessions.Entry{Value: []byte("2"), Rev: rev})
	srv.Thaw()
	if !errors.Is(gerr, context.DeadlineExceeded) || !errors.Is(perr, context.DeadlineExceeded) {
		t.Errorf("got %v and %v, want %v", gerr, perr, context.DeadlineExceeded)
	}
	recovered(t, s, "frozen")
}

// killed: of the writes that a crash interrupts, each is done or not, and those that were
// acknowledged are done.
func killed(t *testing.T, srv Server, s sessions.Store) {
	const writers, crashes = 4, 3
	var mu sync.Mutex
	acknowledged, unknown := 0, 0
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for ctx.Err() == nil {
				e, err := s.Get(t.Context(), "counter")
				if err != nil {
					continue // the server is away
				}
				var n int
				fmt.Sscan(string(e.Value), &n)
				e.Value = fmt.Append(nil, n+1)
				_, err = s.Put(t.Context(), "counter", e)
				mu.Lock()
				switch {
				case err == nil:
					acknowledged++
				case !errors.Is(err, sessions.ErrConflict):
					unknown++
				}
				mu.Unlock()
			}
		})
	}
	done := func() int {
		mu.Lock()
		defer mu.Unlock()
		return acknowledged
	}
	for range crashes {
		before := done()
		until(t, "writes are acknowledged", func() error {
			if n := done() - before; n < 20 {
				return fmt.Errorf("only %d", n)
			}
			return nil
		})
		srv.Kill()
		srv.Start()
	}
	stop()
	wg.Wait()
	var n int
	fmt.Sscan(string(recovered(t, s, "counter").Value), &n)
	if n < acknowledged || n > acknowledged+unknown {
		t.Errorf("got %d writes, want %d that were acknowledged and at most %d more", n, acknowledged, unknown)
	}
}
