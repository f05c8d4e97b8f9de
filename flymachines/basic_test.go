package flymachines

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
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

// The secret of a runner is in one place that others see: files of the configuration at the API, for who has a token. It is in nothing
// that a session gives out, in no metadata, variable or command line, and not in the Machine any more.
func TestSecretStaysWithItsHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log bytes.Buffer
	box, err := Open(t.Context(), driver.Env{Owner: w.owner, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, func() Config {
		c := w.config()
		plain(&c)
		return c
	}())
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, box, executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}})
	var m Machine
	executor.As(s, &m)
	of, err := newBackend(t.Context(), driver.Env{Owner: w.owner}, w.config())
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	secret, err := of.secretOf(s.Info().Handle.Session)
	if err != nil || len(secret) < 64 {
		t.Fatalf("got secret %q, %v", secret, err)
	}
	r, err := s.Run(t.Context(), executor.Request{Code: `import glob, os
for name in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ") + glob.glob("/etc/execbroker/*"):
    try: print(name, open(name, "rb").read())
    except OSError as e: print(name, e.strerror)
print(os.listdir("/etc/execbroker"))`}, nil)
	if err != nil || !strings.HasSuffix(r.Stdout.String(), "[]\n") {
		t.Errorf("got %+v, %v, want that the files of the runner are gone", r, err)
	}
	handle, herr := json.Marshal(s.Info())
	config, cerr := json.Marshal(m.Machine) // whatever a token that can only read sees
	lost := w.Kill(t.Context(), testApp, m.Machine.ID)
	_, rerr := s.Run(t.Context(), executor.Request{Code: "1"}, nil)
	if err := errors.Join(herr, cerr, lost, s.Close(), box.Close()); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"info": string(handle), "config": string(config), "guest": r.Stdout.String(), "log": log.String(), "error": fmt.Sprintf("%v %+v", rerr, rerr),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(secret))) {
			t.Errorf("%s has the secret: %s", what, text)
		}
	}
}

// A user who is not root is named as what keeps an image from being used, whoever notices first that its program has ended.
func TestImageWithUser(t *testing.T) {
	t.Parallel()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	const name, image = "execbroker-test/plain:user", "docker.io/library/user:trixie"
	remove, err := dockertest.Commit(t.Context(), host, name, dockertest.Trixie, "", "USER 1000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, func(c *flytest.Config) { c.Images = map[string]string{image: name} })
	_, err = w.open(t, plain, func(c *Config) { c.Image = image }).Create(t.Context(), executor.Spec{})
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || !slices.Equal(e.Missing, []string{"root"}) || !strings.Contains(err.Error(), image+" has a USER") {
		t.Errorf("got %v, want that the image has a USER", err)
	}
	w.empty(t)
}

// plain is for tests that need nothing but Python.
func plain(c *Config) { c.Image, c.Languages = plainImage, nil }
