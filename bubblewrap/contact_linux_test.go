package bubblewrap

import (
	"errors"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/contacttest"
)

func TestLastContact(t *testing.T) {
	x, owner := open(t, func(*Config) {})
	other, err := Open(t.Context(), driver.Env{Owner: owner}, Config{})
	check(t, err)
	defer other.Close()
	contacttest.Check(t, create(t, x, executor.Spec{}), other)
}

// Code that has the user of the supervisor could answer in its place, so nobody is believed.
func TestLastContactOfOneUser(t *testing.T) {
	p := &process{same: true}
	if _, err := p.Observe(t.Context(), nil); !errors.Is(err, executor.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
