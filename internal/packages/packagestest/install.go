package packagestest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// Installs checks what an installation reports that it has installed in a session: names and
// versions.
func Installs(t testing.TB, s executor.Session, want string, names ...string) {
	t.Helper()
	res, err := s.Install(t.Context(), executor.Packages{Names: names}, nil)
	if err != nil {
		t.Fatalf("install %q: %v", names, err)
	}
	if got := strings.Join(strings.Fields(res.Stdout.String()), " "); res.Status != executor.StatusOK || got != want {
		t.Errorf("install %q: got %s, %q, %q, want %q", names, res.Status, got, res.Stderr, want)
	}
}

// GivesUp makes a session of a backend request packages that take long, and gives up. Meanwhile the
// fetching process must be among the sandboxes of its owner, so that the reaper finds it, and must
// not be a session of a user. Then it repeats that with an index that is down. After each case
// nothing may be left.
func GivesUp(t *testing.T, box executor.Executor, s executor.Session, x *Index, none func(after string)) {
	t.Helper()
	six := executor.Packages{Names: []string{"six"}}
	asked, answer := x.Pause(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() { // waited for below
		_, err := s.Install(ctx, six, nil)
		gaveUp <- err
	}()
	select {
	case <-asked:
	case err := <-gaveUp:
		t.Fatal(err)
	}
	found := 0
	for i, err := range box.Sessions(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if i.Handle.Session == s.Info().Handle.Session {
			continue
		}
		found++
		if i.Created.IsZero() || i.Instance != s.Info().Instance {
			t.Errorf("got %+v", i)
		}
		if a, err := box.Attach(t.Context(), i.Handle); !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("attaching to what fetches: got %v, %v", a, err)
		}
	}
	if found != 1 {
		t.Errorf("got %d sandboxes that fetch, want 1", found)
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	none("given up")
	close(answer)

	x.Down.Store(true)
	if _, err := s.Install(t.Context(), six, nil); !errors.Is(err, executor.ErrUnavailable) {
		t.Errorf("index down: got %v, want %v", err, executor.ErrUnavailable)
	}
	none("index down")
	x.Down.Store(false)
}
