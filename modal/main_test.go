package modal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/modal/modaltest"
)

func TestMain(m *testing.M) {
	// What the SDK reads of this machine is none of these tests' business.
	for _, s := range (&Config{}).settings() {
		if os.Getenv(hostProgram) == "" || s.variable != serverVariable {
			os.Unsetenv(s.variable)
		}
	}
	os.Setenv("MODAL_CONFIG_PATH", os.DevNull)
	if os.Getenv(hostProgram) != "" {
		fmt.Fprintln(os.Stderr, holdSession(context.Background()))
		os.Exit(1) // it was to be killed
	}
	was, err := conformance.RunChild(context.Background(), target())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case was:
		os.Exit(0)
	}
	os.Exit(leaktest.Main(m))
}

const testApp = "sandboxes"

// images maps the names of configurations to those of the test engine.
var images = map[string]string{DefaultImage: dockertest.Python, plainImage: dockertest.Trixie, bareImage: dockertest.NoPython, oldImage: dockertest.Bullseye, ctypesImage: dockertest.NoCtypes}

const (
	plainImage  = "docker.io/library/plain:trixie"
	bareImage   = "docker.io/library/bare:trixie"
	oldImage    = "docker.io/library/old:bullseye"
	ctypesImage = "docker.io/library/ctypes:trixie"
)

const serverVariable = "MODAL_SERVER_URL"

// Where other programs of these tests find the token of the stand-in.
const (
	idVariable     = "EXECBROKER_TEST_MODAL_ID"
	secretVariable = "EXECBROKER_TEST_MODAL_SECRET"
)

// environment is for one test at a time: the SDK reads the address of its server from it.
var environment sync.Mutex

// dialling calls f while the SDK takes an address for that of Modal.
func dialling(url string, f func() error) error {
	environment.Lock()
	defer environment.Unlock()
	defer os.Unsetenv(serverVariable)
	return errors.Join(os.Setenv(serverVariable, url), f())
}

// world is a stand-in and what reaches it.
type world struct {
	*modaltest.Server
	owner      string
	id, secret driver.Secret
}

// newWorld starts a stand-in. At the end nothing of it is left.
func newWorld(t testing.TB, edit ...func(*modaltest.Config)) *world {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	cfg := modaltest.Config{Engine: host, Images: images}
	if os.Getenv("EXECBROKER_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, e := range edit {
		e(&cfg)
	}
	s, err := modaltest.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Server: s, owner: "test-" + strings.ToLower(rand.Text())}
	id, secret := s.Token()
	for _, v := range []struct {
		to    *driver.Secret
		value string
	}{{&w.id, id}, {&w.secret, secret}} {
		*v.to = driver.Secret{Env: idVariable + "_" + rand.Text()}
		os.Setenv(v.to.Env, v.value)
		t.Cleanup(func() { os.Unsetenv(v.to.Env) })
	}
	return w
}

// config is for the stand-in of w.
func (w *world) config() Config {
	return Config{App: testApp, TokenID: w.id, TokenSecret: w.secret, Runtime: VM, Languages: []executor.Language{executor.Python, executor.JavaScript}}
}

// open opens the backend.
func (w *world) open(t testing.TB, edit ...func(*Config)) executor.Executor {
	t.Helper()
	cfg := w.config()
	for _, e := range edit {
		e(&cfg)
	}
	var box executor.Executor
	err := dialling(w.URL(), func() (err error) {
		box, err = Open(t.Context(), w.env(), cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return box
}

func (w *world) env() driver.Env { return driver.Env{Owner: w.owner} }

// backend opens what is below the executor.
func (w *world) backend(t testing.TB) *backend {
	t.Helper()
	var b *backend
	err := dialling(w.URL(), func() (err error) {
		b, err = newBackend(w.env(), w.config())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// create creates a session that is closed at the end.
func create(t testing.TB, box executor.Executor, spec executor.Spec) executor.Session {
	t.Helper()
	s, err := box.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// mustRun runs Python code whose value is wanted.
func mustRun(t testing.TB, s executor.Session, code, want string) {
	t.Helper()
	r, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: code}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, o := range r.Outputs {
		if o.Main {
			got = o.Data["text/plain"].String()
		}
	}
	if got != want {
		t.Errorf("got %q, %s, %s, want %q", got, r.Status, r.Stderr, want)
	}
}

// sandboxOf returns the ID of the Sandbox of a session.
func sandboxOf(t testing.TB, s executor.Session) string {
	t.Helper()
	var sb *sdk.Sandbox
	if !executor.As(s, &sb) {
		t.Fatal("the session has no Sandbox")
	}
	return sb.SandboxID
}

// sole fails the test unless the Sandbox of s is the only one that was ever made, and its container
// the only one that the engine has.
func (w *world) sole(t testing.TB, s executor.Session) {
	t.Helper()
	at, err := w.Containers(t.Context())
	if n := w.Counts()["sandboxes"]; err != nil || n != 1 || len(at) != 1 || at[0] != sandboxOf(t, s) {
		t.Errorf("got %d Sandboxes, containers %q, %v, want %s alone", n, at, err, sandboxOf(t, s))
	}
}

// empty waits until the engine has no container of the stand-in.
func (w *world) empty(t testing.TB) {
	t.Helper()
	w.left(t, 0)
}

// left waits until the engine has so many.
func (w *world) left(t testing.TB, n int) {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d containers are left", n), func() error {
		at, err := w.Containers(t.Context())
		if err == nil && len(at) != n {
			err = fmt.Errorf("got containers %q", at)
		}
		return err
	})
}

// plain is for tests that need nothing but Python.
func plain(c *Config) { c.Image, c.Languages = plainImage, nil }
