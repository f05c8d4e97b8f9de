package flymachines

import (
	"errors"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
)

func TestSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t)
	s := create(t, box, executor.Spec{Labels: map[string]string{"a": "b"}})
	mustRun(t, s, "x = 41\nx + 1", "42")
	mustRun(t, s, "x", "41")
	var m *fly.Machine
	if !executor.As(s, &m) || m.Name != machineName(s.Info().Handle.Session) {
		t.Errorf("got %+v", m)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w.none(t)
}

// In an image without ctypes nothing narrows what sockets code can make. The network is shut all the same.
func TestWithoutCtypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	without := func(c *Config) { c.Image = ctypesImage }
	if _, err := w.open(t, plain, without).Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "allow_weak") {
		t.Errorf("got %v", err)
	}
	w.empty(t)
	s := create(t, w.open(t, plain, without, func(c *Config) { c.AllowWeak = true }), executor.Spec{})
	mustRun(t, s, `import socket
def closed(*a):
    try: socket.socket(a[0]).connect(a[1]); return False
    except OSError as e: return e.errno
[closed(socket.AF_INET, ("192.0.2.1", 80)), closed(socket.AF_INET6, ("2001:db8::1", 80))]`, "[101, 101]")
}

// plain is for tests that need nothing but Python.
func plain(c *Config) { c.Image, c.Languages = plainImage, nil }
