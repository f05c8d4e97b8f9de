package all_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// A link is the connection between an application and a backend.
type link interface {
	Cut()  // ends all connections and refuses new ones
	Mend() // accepts connections again
}

// four is the four backends on this machine: Pyodide, Docker, and stand-ins for the two clouds that
// use the same engine and image.
type four struct {
	owner    string
	settings map[string]string // the configuration of each, without the closing brace
	links    map[string]link   // of the backends that have one
	fly      *flytest.Local
}

// The names of the backends in the configurations of these tests.
const (
	local    = "local"    // Pyodide
	box      = "box"      // Docker
	cloud    = "cloud"    // E2B
	machines = "machines" // Fly
)

// newFour starts the stand-ins. At the end of the test it checks that nothing is left on the
// engine.
func newFour(t *testing.T) *four {
	t.Helper()
	engine, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	f := &four{owner: "four-" + strings.ToLower(rand.Text())}
	cable, err := dockertest.NewCable(engine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cable.Close() })

	const image = dockertest.Python
	e2b, err := e2btest.Start(t.Context(), e2btest.Options{Owner: f.owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e2b.Close(); err != nil {
			t.Error(err)
		}
	})

	fly, err := flytest.Start(t.Context(), flytest.Config{
		Engine: engine, Apps: []flytest.App{{Name: "sandboxes"}}, Images: map[string]string{"docker.io/library/the:image": image}, Rate: math.Inf(1), MaxMachines: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.fly = fly
	t.Cleanup(func() {
		if err := fly.Close(); err != nil {
			t.Error(err)
		}
	})
	// The variables have unique names, because other tests run at the same time.
	key, token := "E2B_KEY_"+rand.Text(), "FLY_TOKEN_"+rand.Text()
	for name, value := range map[string]string{key: e2btest.Key, token: fly.Token()} {
		os.Setenv(name, value)
		t.Cleanup(func() { os.Unsetenv(name) })
	}

	toE2B, toFly, toMachines := newProxy(t, e2b.URL), newProxy(t, fly.API), newProxy(t, fly.Edge)
	f.links = map[string]link{box: cable, cloud: toE2B, machines: links{toFly, toMachines}}
	f.settings = map[string]string{
		local: "type: pyodide",
		box:   fmt.Sprintf("type: docker, host: %q, image: %q, pull: never, timeout: 60s", cable.Host, image),
		cloud: fmt.Sprintf("type: e2b, api_key: {env: %s}, api_url: %q, sandbox_url: %q, timeout: 60s", key, toE2B.URL, toE2B.URL),
		machines: fmt.Sprintf("type: flymachines, app: sandboxes, token: {env: %s}, api: %q, proxy: %q, image: %q, rate: 1000, timeout: 60s",
			token, toFly.URL, toMachines.URL, "docker.io/library/the:image"),
	}
	return f
}

// nothingLeft counts the sandboxes on the engine and the stand-ins after the application has ended.
// What could not be removed while it was unreachable must be removed when it is reachable again.
func (f *four) nothingLeft(t *testing.T) {
	t.Helper()
	engine, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "nothing is left", func() error {
		left, err := dockertest.Containers(context.Background(), engine, driver.LabelOwner+"="+f.owner)
		if err != nil {
			t.Fatal(err)
		}
		if left = append(left, f.fly.Machines("sandboxes")...); len(left) > 0 {
			return fmt.Errorf("%q are", left)
		}
		return nil
	})
}

// links is a set of links that are cut together.
type links []link

func (all links) Cut() {
	for _, l := range all {
		l.Cut()
	}
}

func (all links) Mend() {
	for _, l := range all {
		l.Mend()
	}
}
