package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// dialed returns an Executor over a Backend that is reached over a socket.
func dialed(t *testing.T) (*Backend, executor.Executor) {
	t.Helper()
	b := New(Options{})
	address, stop, err := Serve(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil || len(b.Sandboxes()) > 0 {
			t.Errorf("got %v, and %v left", err, b.Sandboxes())
		}
	})
	d, err := Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(d, driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return b, x
}

func TestWireErrors(t *testing.T) {
	for _, err := range []error{
		nil, errors.New("plain"), &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, errCanceled, context.DeadlineExceeded,
		driver.Fail(executor.ErrBusy, executor.RanNo, nil), driver.Fail(executor.ErrUnavailable, executor.RanYes, errors.New("why")),
		&executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"stdin"}},
	} {
		got := toWire(err).error()
		if fmt.Sprint(got) == "" || (got == nil) != (err == nil) {
			t.Errorf("%v: got %v", err, got)
		}
		for _, kind := range wireKinds {
			if errors.Is(got, kind) != errors.Is(err, kind) {
				t.Errorf("%v: got %v, is %v: %v", err, got, kind, errors.Is(got, kind))
			}
		}
		var want, have *executor.Error
		if errors.As(err, &want) && (!errors.As(got, &have) || have.Ran != want.Ran || !reflect.DeepEqual(have.Missing, want.Missing)) {
			t.Errorf("%v: got %#v", err, have)
		}
	}
}

// TestUnreadInput checks that a run that does not read its input does not harm later requests.
func TestUnreadInput(t *testing.T) {
	_, x := dialed(t)
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 300 {
		for _, in := range []io.Reader{strings.NewReader("Ada\nGrace\n"), nil} {
			if _, err := s.Run(t.Context(), executor.Request{Code: "print hi", Stdin: in}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRunOutlivesItsHolder checks that a run continues after the process that started it is gone,
// until it is ended.
func TestRunOutlivesItsHolder(t *testing.T) {
	b, x := dialed(t)
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	var hung driver.Driver
	if hung, err = Dial(t.Context(), ""); err == nil {
		t.Fatalf("got %v from an address without a server", hung)
	}
	started, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		s.Run(t.Context(), executor.Request{Code: "print(1)\nforever()"}, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				close(started)
			}
			return nil
		})
	}()
	<-started
	other, err := b.Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	o, err := other.Attach(t.Context(), s.Info().Handle)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Error(err)
	}
	<-left
	if r, err := o.Run(t.Context(), executor.Request{Code: "7"}, nil); err != nil || !r.StateFresh {
		t.Errorf("got %+v, %v after a reset by another holder", r, err)
	}
}

// TestCreateThatIsGivenUp checks that a sandbox is removed if nobody waited for its creation any
// more.
func TestCreateThatIsGivenUp(t *testing.T) {
	b, x := dialed(t)
	release := b.Hold(OpCreate)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := x.Create(ctx, executor.Spec{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	release()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if got := b.Sandboxes(); len(got) > 0 {
		t.Errorf("got %v left", got)
	}
}
