package nemo_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/nemo"
)

const alice, bob = "key-of-alice-0123456789", "key-of-bob-0123456789"

func keys(t *testing.T) (k server.Keys) {
	t.Helper()
	for _, key := range []string{alice, bob} {
		if err := k.Add(key, server.Client{Subject: "both"}); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// backends returns a backend on which calls of a key run at the same time, and one on which they
// run one after the other.
func backends() map[string]fake.Options {
	return map[string]fake.Options{
		"side-by-side": {},
		"in-turn":      {Capabilities: fake.Without(fake.All(), executor.FeatureContexts, executor.FeatureParallelRuns)},
	}
}

// A key has one workspace. Its calls share files but no variables, and share nothing with calls of
// other keys.
func TestWorkspaces(t *testing.T) {
	for name, o := range backends() {
		t.Run(name, func(t *testing.T) {
			b := fake.New(o)
			s := serve(t, open(t, b), nemo.Config{Keys: keys(t)})
			for i, test := range []struct{ key, code, stdout string }{
				{alice, "write(\"a.txt\", \"mine\")\nx = 1", ""},
				{alice, `print(read("a.txt"), recall("x", "none"))`, "mine none\n"},
				{bob, `print(exists("a.txt"), recall("x", "none"))`, "false none\n"},
				{bob, `write("a.txt", "other")`, ""},
				{alice, `print(read("a.txt"))`, "mine\n"},
			} {
				status, a := do(t, s, call(t, test.code, 10), "Authorization", "Bearer "+test.key)
				if status != 200 || a.Status != "completed" || a.Stdout != test.stdout || a.Stderr != "" {
					t.Errorf("%d: got %d %+v, want %q", i, status, a, test.stdout)
				}
			}
			if n := len(b.Sandboxes()); n != 2 {
				t.Errorf("got %d sandboxes for 2 keys", n)
			}
			// Simultaneous calls of one key all succeed, even before the key has a sandbox.
			s = serve(t, open(t, fake.New(o)), nemo.Config{})
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					if status, a := do(t, s, call(t, fmt.Sprintf("y = %d\nsleep(20)\nwrite(\"f%d.txt\", \"x\")\nprint(y)", i, i), 30)); a.Stdout != fmt.Sprintln(i) {
						t.Errorf("got %d %+v", status, a)
					}
				})
			}
			wg.Wait()
			if _, a := do(t, s, call(t, `print(exists("f0.txt"), exists("f7.txt"))`, 10)); a.Stdout != "true true\n" {
				t.Errorf("got %+v", a)
			}
		})
	}
}

// If the backend supports it, a call in progress does not block others.
func TestSideBySide(t *testing.T) {
	b := fake.New(fake.Options{})
	s := serve(t, open(t, b), nemo.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/execute", strings.NewReader(call(t, "write(\"begun\", \"\")\nforever()", 300)))
		r.Header.Set("Content-Type", "application/json")
		s.ServeHTTP(httptest.NewRecorder(), r)
	}()
	waittest.Until(t, "the call begins", func() error {
		if _, a := do(t, s, call(t, `print(exists("begun"))`, 10)); a.Stdout != "true\n" {
			return fmt.Errorf("got %+v", a)
		}
		return nil
	})
	cancel() // a client that disconnects stops its code
	<-done
	if _, a := do(t, s, call(t, `print("on")`, 10)); a.Stdout != "on\n" || len(b.Sandboxes()) != 1 {
		t.Errorf("got %+v", a)
	}
}

// A sandbox that has ended between two calls is replaced. A call that fails after that says what is
// gone.
func TestWorkspaceEnds(t *testing.T) {
	for name, o := range backends() {
		t.Run(name, func(t *testing.T) {
			b := fake.New(o)
			s := serve(t, open(t, b), nemo.Config{})
			die := func() {
				do(t, s, call(t, `write("a.txt", "mine")`, 10))
				for _, id := range b.Sandboxes() {
					b.Break(id)
				}
			}
			die()
			if _, a := do(t, s, call(t, `print("on")`, 10)); a.Status != "completed" || a.Stdout != "on\n" || a.Stderr != "" {
				t.Errorf("got %+v", a)
			}
			die()
			if _, a := do(t, s, call(t, `read("a.txt")`, 10)); a.Status != "error" || !strings.Contains(a.Stderr, "files of earlier calls are gone") {
				t.Errorf("got %+v", a)
			}
			if _, a := do(t, s, call(t, `read("a.txt")`, 10)); a.Status != "error" || strings.Contains(a.Stderr, "gone") { // the loss was already reported
				t.Errorf("got %+v", a)
			}
		})
	}
}

// The variables of a call are never visible to the next, even if the backend fails to end the
// interpreter.
func TestFailedReset(t *testing.T) {
	o := backends()["in-turn"]
	b := fake.New(o)
	s := serve(t, open(t, b), nemo.Config{})
	b.Fail(fake.OpReset, 2, &executor.Error{Kind: executor.ErrInternal, Ran: executor.RanNo})
	for i, test := range []struct {
		code, stdout string
		status       int
	}{
		{"x = \"secret\"\nprint(\"first\")", "first\n", 200}, // ending its interpreter fails, which does not concern this call
		{`print(recall("x", "none"))`, "", http.StatusInternalServerError},
		{`print(recall("x", "none"))`, "none\n", 200},
	} {
		if status, a := do(t, s, call(t, test.code, 10)); status != test.status || a.Stdout != test.stdout {
			t.Errorf("%d: got %d %+v", i, status, a)
		}
	}
}
