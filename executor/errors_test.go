package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestErrorText(t *testing.T) {
	for name, c := range map[string]struct {
		err  executor.Error
		want string
	}{
		"kind-only": {executor.Error{Kind: executor.ErrBusy}, "busy"},
		"all": {
			executor.Error{Op: "run", Backend: "box", Session: "s1", Kind: executor.ErrUnavailable, Err: errors.New("connection reset")},
			"box: run s1: backend unavailable: connection reset",
		},
		"missing": {
			executor.Error{Op: "create", Backend: "box", Kind: executor.ErrUnsupported, Missing: []string{"command", "template:x"}},
			"box: create: not supported by this backend: unsupported operation: needs command, template:x",
		},
		"no-session": {executor.Error{Op: "create", Kind: context.Canceled}, "create: context canceled"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestKindName(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "other"},
		{errors.New("x"), "other"},
		{executor.ErrUnavailable, "unavailable"},
		{fmt.Errorf("outer: %w", &executor.Error{Kind: executor.ErrUnsupported, Err: executor.ErrBusy}), "unsupported"},
		{&executor.Error{Kind: fs.ErrNotExist}, "file-not-found"},
		{&executor.Error{Kind: executor.ErrNotFound, Err: fs.ErrNotExist}, "not-found"},
		{&executor.Error{Kind: context.DeadlineExceeded, Err: executor.ErrUnavailable}, "deadline-exceeded"},
	} {
		if got := executor.KindName(c.err); got != c.want {
			t.Errorf("%v: got %q, want %q", c.err, got, c.want)
		}
	}
}

func TestErrorUnwraps(t *testing.T) {
	cause := errors.New("cause")
	e := &executor.Error{Kind: executor.ErrUnsupported, Err: cause}
	for _, want := range []error{executor.ErrUnsupported, errors.ErrUnsupported, cause} {
		if !errors.Is(e, want) {
			t.Errorf("%v is not %v", e, want)
		}
	}
	if errors.Is(&executor.Error{Kind: executor.ErrNotFound}, fs.ErrNotExist) {
		t.Error("a session that is not found is taken for a file")
	}
	if got := (&executor.Error{}).Unwrap(); got != nil {
		t.Errorf("got %v of the zero Error", got)
	}
}

func TestRetryable(t *testing.T) {
	mk := func(kind error, ran executor.Ran, cause error) error {
		return &executor.Error{Op: "create", Kind: kind, Ran: ran, Err: cause}
	}
	unavailable := mk(executor.ErrUnavailable, executor.RanNo, nil)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                 {nil, false},
		"unavailable":         {unavailable, true},
		"exhausted":           {mk(executor.ErrExhausted, executor.RanNo, nil), true},
		"wrapped":             {fmt.Errorf("x: %w", unavailable), true},
		"maybe":               {mk(executor.ErrUnavailable, executor.RanMaybe, nil), false},
		"ran":                 {mk(executor.ErrUnavailable, executor.RanYes, nil), false},
		"busy":                {mk(executor.ErrBusy, executor.RanNo, nil), false},
		"unsupported":         {mk(executor.ErrUnsupported, executor.RanNo, nil), false},
		"refusal-with-cause":  {mk(executor.ErrDenied, executor.RanNo, unavailable), false},
		"caller-gave-up":      {mk(context.DeadlineExceeded, executor.RanNo, unavailable), false},
		"not-of-this-package": {errors.New("x"), false},
	} {
		if got := executor.Retryable(c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestRanText(t *testing.T) {
	var zero executor.Ran
	for r, want := range map[executor.Ran]string{zero: "maybe", executor.RanNo: "no", executor.RanYes: "yes", 77: "yes"} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
