package bubblewrap

import (
	"errors"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// TestCompiled starts sandboxes with a supervisor that was compiled ahead. What another version of
// Python has made is not used, and what this one has made is, whether it is good or not.
func TestCompiled(t *testing.T) {
	t.Parallel()
	version(t)
	m, err := newMachine(driver.Env{}, Config{})
	check(t, err)
	eventually(t, "compiled", func() bool { return m.supervisor("") != nil })
	good := m.supervisor("")
	x, err := runner.Open(driver.Env{Owner: "test"}, m, (&Config{}).options(m.limits()))
	check(t, err)
	t.Cleanup(func() { check(t, x.Close()) })
	for _, c := range []struct {
		name string
		code []byte
		kind error
	}{{"good", good, nil}, {"of-another-version", append([]byte("none"), good[4:]...), nil}, {"cut", good[:len(good)/2], executor.ErrUnsupported}} {
		t.Run(c.name, func(t *testing.T) {
			m.mu.Lock()
			m.compiled[""] = c.code
			m.mu.Unlock()
			s, err := x.Create(t.Context(), executor.Spec{})
			if !errors.Is(err, c.kind) {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			if got := says(t, s, "print(6 * 7)"); got != "42" {
				t.Errorf("got %q", got)
			}
			check(t, s.Close())
		})
	}
}
