package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestCodeOf(t *testing.T) {
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(&signalError{os.Interrupt})
	fail := func(kind, cause error) error { return &executor.Error{Op: "run", Kind: kind, Err: cause} }
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want int
	}{
		"ok":               {t.Context(), nil, 0},
		"code":             {t.Context(), exitCode(124), 124},
		"joined-code":      {t.Context(), errors.Join(exitCode(124)), 124},
		"usage":            {t.Context(), usage("x"), 2},
		"configuration":    {t.Context(), fmt.Errorf("x: %w", &executor.FieldError{Err: errors.New("wrong")}), 2},
		"unsupported":      {t.Context(), fail(executor.ErrUnsupported, nil), 2},
		"invalid":          {t.Context(), fail(executor.ErrInvalid, nil), 2},
		"no-such-file":     {t.Context(), fail(fs.ErrNotExist, nil), 2},
		"unavailable":      {t.Context(), fail(executor.ErrUnavailable, fs.ErrNotExist), 3},
		"other":            {t.Context(), errors.New("x"), 3},
		"output-closed":    {t.Context(), &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}, 141},
		"sandbox-closed":   {t.Context(), fail(executor.ErrUnavailable, syscall.EPIPE), 3},
		"stopped":          {stopped, fail(context.Canceled, nil), 130},
		"stopped-badly":    {stopped, fail(executor.ErrUnavailable, nil), 130},
		"stopped-too-late": {stopped, exitCode(1), 1},
		"own-context":      {t.Context(), fail(context.Canceled, nil), 3},
	} {
		if got := codeOf(c.ctx, c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestErrorBeforeJSON: an error on the command line is a JSON document, wherever --json is on it.
func TestErrorBeforeJSON(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--json", "doctor", "--bogus"}, {"doctor", "--bogus", "--json"}} {
		p := run(t, exitUsage, args...)
		var doc struct {
			Error errorReport `json:"error"`
		}
		if err := json.Unmarshal(p.out.Bytes(), &doc); err != nil || doc.Error.Kind != "usage" {
			t.Errorf("%v: got %v %q", args, err, p.out.String())
		}
	}
}
