package engine_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// serving returns a session in which a server listens, and its port.
func serving(t *testing.T) (executor.Session, int) {
	t.Helper()
	x, err := fake.New(fake.Options{}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	s, err := x.Create(t.Context(), executor.Spec{Ports: true, IdleTTL: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	code := strings.ReplaceAll(fake.Programs(executor.Python)["serve"], "{{address}}", `"127.0.0.1"`)
	res, err := s.Run(t.Context(), executor.Request{Code: code}, nil)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if err != nil {
		t.Fatal(err)
	}
	return s, port
}

// A connection ends at its bounds of bytes and of time, whatever its server does.
func TestForwardBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, port := serving(t)
		begin := time.Now()
		mute, err := s.Dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(mute, "mute\n")
		if n, err := mute.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) || time.Since(begin) != executor.MaxForwardTime {
			t.Errorf("got %d, %v after %v", n, err, time.Since(begin))
		}
		half, err := s.Dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		const head = "half\n"
		io.WriteString(half, head)
		if got, err := io.ReadAll(half); string(got) != "half" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		sent := int64(len(head + "half"))
		for block := make([]byte, 1<<20); err == nil; {
			var n int
			n, err = half.Write(block)
			sent += int64(n)
		}
		if sent != executor.MaxForwardBytes || !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %d bytes, %v", sent, err)
		}
		s.Close()
	})
}

// The end of the context of Dial ends connecting, and not the connection.
func TestForwardContext(t *testing.T) {
	s, port := serving(t)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := s.Dial(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	io.WriteString(c, "half\n")
	if got, err := io.ReadAll(c); string(got) != "half" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := s.Dial(ctx, port); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with a context that has ended", err)
	}
}
