package all_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// A link is what an application reaches a backend by.
type link interface {
	Cut()  // ends all connections; nobody gets through
	Mend() // lets everybody through
}

// four is the four backends on this machine: Pyodide, Docker, and stand-ins for the two clouds over
// the same engine and image.
type four struct {
	owner    string
	settings map[string]string // what a file says of each, without the closing brace
	links    map[string]link   // of those that are reached by one
	fly      *flytest.Local
}

// The names of the backends in the files of these tests.
const (
	local    = "local"    // Pyodide
	box      = "box"      // Docker
	cloud    = "cloud"    // E2B
	machines = "machines" // Fly
)

// newFour starts the stand-ins. At the end nothing is left at the engine.
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
	// A world has variables of its own, because those of other tests are there at the same time.
	key, token := "E2B_KEY_"+rand.Text(), "FLY_TOKEN_"+rand.Text()
	for name, value := range map[string]string{key: e2btest.Key, token: fly.Token()} {
		os.Setenv(name, value)
		t.Cleanup(func() { os.Unsetenv(name) })
	}

	toE2B, toFly, toMachines := newGate(t, e2b.URL), newGate(t, fly.API), newGate(t, fly.Edge)
	f.links = map[string]link{box: cable, cloud: toE2B, machines: links{toFly, toMachines}}
	f.settings = map[string]string{
		local: "type: pyodide",
		box:   fmt.Sprintf("type: docker, host: %q, image: %q, pull: never, timeout: 20s", cable.Host, image),
		cloud: fmt.Sprintf("type: e2b, api_key: {env: %s}, api_url: %q, sandbox_url: %q, timeout: 20s", key, toE2B.URL, toE2B.URL),
		machines: fmt.Sprintf("type: flymachines, app: sandboxes, token: {env: %s}, api: %q, proxy: %q, image: %q, rate: 1000, timeout: 20s",
			token, toFly.URL, toMachines.URL, "docker.io/library/the:image"),
	}
	return f
}

// nothingLeft counts at the engine and at the stand-ins, when the application has ended. What could
// not be removed while it was out of reach is removed when it is within reach again.
func (f *four) nothingLeft(t *testing.T) {
	t.Helper()
	engine, err := dockertest.Host()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // a poll
		left, err := dockertest.Containers(context.Background(), engine, driver.LabelOwner+"="+f.owner)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, f.fly.Machines("sandboxes")...)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left: %q", left)
		}
	}
}

// links are several that are cut together.
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
