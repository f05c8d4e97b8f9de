package docker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/contacttest"
	"github.com/execbroker/execbroker/internal/waittest"
)

func TestLastContact(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	s := create(t, open(t), executor.Spec{})
	foreign, err := Open(t.Context(), driver.Env{Owner: owner(t) + "-other"}, Config{Host: e.at.host, Image: dockertest.Python, Pull: PullNever})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := foreign.LastContact(t.Context(), s.Info().Handle); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("for another owner: got %v, want ErrNotFound", err)
	}
	other := open(t)
	before := time.Now()
	waittest.Until(t, "a holder that does nothing stays in contact", func() error {
		<-time.After(2 * time.Second) // each look-up starts a process in the container
		at, err := other.LastContact(t.Context(), s.Info().Handle)
		if err == nil && !at.After(before) {
			err = fmt.Errorf("the last contact was %v before the holder fell silent", before.Sub(at))
		}
		return err
	})
	contacttest.Check(t, s, other)
}
