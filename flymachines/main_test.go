package flymachines

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/leaktest"
	"github.com/execbroker/execbroker/internal/waittest"
)

func TestMain(m *testing.M) {
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

// tokenVariable is where other programs of these tests find the token of the emulator. A world has
// a variable of its own, because several are there at a time.
const tokenVariable = "EXECBROKER_TEST_FLY_TOKEN"

// world is an emulator and what reaches it.
type world struct {
	*flytest.Local
	owner string
	token driver.Secret
}

// newWorld starts an emulator. At the end nothing of it is left.
func newWorld(t testing.TB, edit ...func(*flytest.Config)) *world {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	cfg := flytest.Config{Engine: host, Apps: []flytest.App{{Name: testApp}}, Rate: math.Inf(1), Images: images}
	for _, e := range edit {
		e(&cfg)
	}
	s, err := flytest.Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Local: s, owner: "test-" + strings.ToLower(rand.Text())}
	w.token = driver.Secret{Env: tokenVariable + "_" + rand.Text()}
	os.Setenv(w.token.Env, s.Token())
	t.Cleanup(func() { os.Unsetenv(w.token.Env) })
	return w
}

// config is for the emulator of w, whose Machines are reached by their private addresses.
func (w *world) config() Config {
	return Config{App: testApp, Token: w.token, API: w.API, Dial: w.DialContext, Rate: 1000,
		Languages: []executor.Language{executor.Python, executor.JavaScript}}
}

// open opens the backend.
func (w *world) open(t testing.TB, edit ...func(*Config)) executor.Executor {
	t.Helper()
	cfg := w.config()
	for _, e := range edit {
		e(&cfg)
	}
	box, err := Open(t.Context(), driver.Env{Owner: w.owner}, cfg)
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

// machines returns the Machines of the owner that the API knows, by ID.
func (w *world) machines(t testing.TB) []string {
	t.Helper()
	b, err := newBackend(t.Context(), driver.Env{Owner: w.owner}, w.config())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ms, err := b.api.list(t.Context(), metadataOwner, w.owner)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range ms {
		ids = append(ids, m.ID+" "+m.State)
	}
	return ids
}

// none waits until no Machine is left.
func (w *world) none(t testing.TB) {
	t.Helper()
	waittest.Until(t, "no Machine is left", func() error {
		if left := w.machines(t); len(left) > 0 {
			return fmt.Errorf("got %q", left)
		}
		return nil
	})
}

func driverEnv(w *world) driver.Env { return driver.Env{Owner: w.owner} }
