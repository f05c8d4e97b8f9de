package docker

import (
	"errors"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/contacttest"
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
	contacttest.Check(t, s, open(t))
}
