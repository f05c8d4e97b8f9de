package checkpoint_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// TestOrigin restores an archive of unknown origin where it can do no harm, and only there.
func TestOrigin(t *testing.T) {
	x := local(t)
	from := talk{create(t, x, executor.Spec{}), ""}
	from.says(t, "a = [1]")
	archive, _ := from.made(t, checkpoint.Options{})
	to := talk{create(t, x, executor.Spec{}), ""}
	for name, c := range map[string]struct {
		opts checkpoint.Options
		ok   bool
	}{
		"nobody-says": {checkpoint.Options{}, false},
		"full":        {checkpoint.Options{Spec: &executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}}, false},
		"allow-list":  {checkpoint.Options{Spec: &executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"a.example"}}}}, false},
		"secrets":     {checkpoint.Options{Spec: &executor.Spec{Env: map[string]string{"A": "b"}}}, false},
		"confined":    {checkpoint.Options{Spec: &executor.Spec{}}, true},
		"none":        {checkpoint.Options{Spec: &executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkNone}}}, true},
		"known":       {checkpoint.Options{Known: true, Spec: &executor.Spec{Env: map[string]string{"A": "b"}}}, true},
	} {
		_, err := checkpoint.Restore(t.Context(), to, bytes.NewReader(archive), c.opts)
		var e *executor.Error
		switch {
		case c.ok && err != nil:
			t.Errorf("%s: %v", name, err)
		case !c.ok && (!errors.Is(err, executor.ErrDenied) || !errors.As(err, &e) || e.Ran != executor.RanNo):
			t.Errorf("%s: %v", name, err)
		}
		if got := to.says(t, "print(globals().pop('a', None))"); (got == "[1]") != c.ok {
			t.Errorf("%s: the session has %s", name, got)
		}
	}
}
