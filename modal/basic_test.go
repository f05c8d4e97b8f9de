package modal

import (
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/contacttest"
)

func TestSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t)
	s := create(t, box, executor.Spec{Labels: map[string]string{"a": "b"}})
	mustRun(t, s, "x = 41\nx + 1", "42")
	mustRun(t, s, "x", "41")
	w.sole(t, s)
	other, err := w.open(t).Attach(t.Context(), s.Info().Handle)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, other, "x", "41")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	w.empty(t)
	contacttest.Check(t, create(t, box, executor.Spec{}), w.open(t))
}

// Both generations of Modal's API do the same. The SDK takes v1 from its environment only.
func TestGenerations(t *testing.T) {
	w := newWorld(t)
	t.Setenv("MODAL_SANDBOX_V2", "0")
	box := w.open(t, plain, func(c *Config) { c.Generation = V1 })
	s := create(t, box, executor.Spec{})
	mustRun(t, s, "6 * 7", "42")
	w.sole(t, s)
	if n := w.Counts(); n["SandboxCreate"] != 1 || n["SandboxCreateV2"] != 0 {
		t.Errorf("got %v, want a Sandbox of v1", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	w.empty(t)
}

// The GPU of a template is asked for, of v1 whatever the generation. The stand-in has none.
func TestGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.open(t, plain, func(c *Config) { c.Templates = map[string]Template{"gpu": {Image: plainImage, GPU: "T4"}} })
	if _, err := box.Create(t.Context(), executor.Spec{Template: "gpu"}); !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "a GPU is not there") {
		t.Errorf("got %v", err)
	}
	if n := w.Counts(); n["SandboxCreate"] != 1 || n["SandboxCreateV2"] != 0 {
		t.Errorf("got %v, want a Sandbox of v1", n)
	}
}

// In an image without ctypes nothing narrows what sockets code can make. The network is shut all
// the same.
func TestWithoutCtypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	without := func(c *Config) { plain(c); c.Image = ctypesImage }
	if _, err := w.open(t, without).Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrUnsupported) || !strings.Contains(err.Error(), "allow_weak") {
		t.Errorf("got %v", err)
	}
	w.empty(t)
	s := create(t, w.open(t, without, func(c *Config) { c.AllowWeak = true }), executor.Spec{})
	mustRun(t, s, "import socket\n[n for _, n in socket.if_nameindex()]", "['lo']")
}

// What an image lacks is said by name.
func TestImages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for image, c := range map[string]struct {
		kind error
		want string
	}{
		bareImage:                     {executor.ErrUnsupported, "python3"},
		oldImage:                      {nil, ""},
		"docker.io/library/nowhere:1": {executor.ErrUnavailable, "manifest unknown"},
		"im-0123456789012345678901":   {executor.ErrInvalid, "im-0123456789012345678901"},
	} {
		_, err := w.open(t, func(c *Config) { c.Image, c.Languages = image, nil }).Create(t.Context(), executor.Spec{})
		if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %v and %q", image, err, c.kind, c.want)
		}
	}
}
