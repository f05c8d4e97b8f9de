// Package contacttest checks what a backend says of the last contact with a holder.
package contacttest

import (
	"errors"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Check asks other, another process, for the last contact of a session that this process holds. The
// answer is true, the session stays with its holder, and it is destroyed in the end.
func Check(t *testing.T, s executor.Session, other executor.Executor) {
	t.Helper()
	h := s.Info().Handle
	use := func() {
		t.Helper()
		if r, err := s.Run(t.Context(), executor.Request{Code: "print(1)"}, nil); err != nil || r.Stdout.String() != "1\n" {
			t.Fatalf("the holder: got %+v, %v", r, err)
		}
	}
	before := time.Now()
	use()
	at, err := other.LastContact(t.Context(), h)
	if err != nil || at.Before(before) || at.After(time.Now()) {
		t.Errorf("got %v, %v; the session was used after %v", at, err, before)
	}
	use()
	forged := h
	forged.Session = "a" + h.Session[1:]
	if forged.Session == h.Session {
		forged.Session = "b" + h.Session[1:]
	}
	if _, err := other.LastContact(t.Context(), forged); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("of no sandbox: got %v, want ErrNotFound", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.LastContact(t.Context(), h); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("of a sandbox that is gone: got %v, want ErrNotFound", err)
	}
}
