package missing_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/missing"
)

// An error and the check say the same, whatever is around the error.
func TestCheck(t *testing.T) {
	cause := errors.New("/a: none\nof them")
	for _, c := range []struct {
		err  error
		text string
		want driver.Check
	}{
		{missing.New("disk", cause, "make room"), "disk: /a: none\nof them; make room", driver.Check{Name: "disk", Detail: "/a: none; of them", Fix: "make room"}},
		{missing.New("", cause, "make room"), "/a: none\nof them; make room", driver.Check{Name: "engine", Detail: "/a: none; of them", Fix: "make room"}},
		{fmt.Errorf("create: %w", missing.New("disk", cause, "make room")), "create: disk: /a: none\nof them; make room", driver.Check{Name: "disk", Detail: "/a: none; of them", Fix: "make room"}},
		{cause, "/a: none\nof them", driver.Check{Name: "engine", Detail: "/a: none; of them", Fix: "look"}},
	} {
		if got := missing.Check("engine", c.err, "look"); got != c.want || c.err.Error() != c.text || !errors.Is(c.err, cause) {
			t.Errorf("got %+v of %q, want %+v of %q", got, c.err, c.want, c.text)
		}
	}
}
