package docker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestCut is the short form of TestSoakCut: each step is cut at one of its places, and the
// connection comes back or stays away.
func TestCut(t *testing.T) {
	t.Parallel()
	cutEverywhere(t, func(i int, step string) []dockertest.Cut {
		return []dockertest.Cut{{Step: step, Where: dockertest.Where(i % 3), Stays: i/3%2 == 1}}
	})
}

// cutEverywhere cuts the connection between the client and the engine at the steps of what they say
// to each other in Create, Run and Close. Which steps there are shows a life in which nothing is
// cut.
func cutEverywhere(t *testing.T, cuts func(i int, step string) []dockertest.Cut) {
	engine, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	for _, phase := range []string{"create", "run", "close"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			line, err := dockertest.NewCable(engine)
			check(t, err)
			t.Cleanup(func() { check(t, line.Close()) })
			c := &cutting{line: line, engine: engine, phase: phase}
			steps := slices.DeleteFunc(c.life(t, dockertest.Cut{}), func(step string) bool {
				return strings.HasSuffix(step, "GET containers/json") // of what goes on beside the first Create: it looks for what others have left
			})
			n := 0
			for i, step := range steps {
				for _, at := range cuts(i, step) {
					n++
					name := fmt.Sprintf("%s %s, stays %v", at.Where, strings.ReplaceAll(step, "/", "-"), at.Stays)
					t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
						if got := c.life(t, at); !slices.Contains(got, step) {
							t.Errorf("the step was not reached; there were %q", got)
						}
					})
				}
			}
			t.Logf("%d cuts at %d steps: %q", n, len(steps), steps)
		})
	}
}

// cutting is sessions whose connection is cut in a phase of their life.
type cutting struct {
	line   *dockertest.Cable
	engine string
	phase  string
}

// life makes a session of a backend of its own, runs code in it and closes it. The cable is cut
// once in one of these, and mended when that has returned. What an error says of the code is
// compared with a trace that the code leaves, nothing runs twice, and nothing is left at the
// engine. It returns the steps of the phase.
func (c *cutting) life(t *testing.T, at dockertest.Cut) (steps []string) {
	t.Helper()
	owner := owner(t)
	x, err := Open(t.Context(), driver.Env{Owner: owner}, Config{Host: c.line.Host, Image: dockertest.Trixie, Pull: PullNever, Timeout: driver.Duration(30 * time.Second)})
	check(t, err)
	defer func() {
		c.line.Mend()
		check(t, x.Close())
		if left := containers(t, c.engine, owner); len(left) > 0 {
			t.Errorf("containers are left: %q", left)
		}
	}()
	hit := false // what comes next may still meet the connection that has just been cut
	// during calls f, with the cable cut if this is the phase, and checks the kind of its error.
	during := func(phase string, f func() error) *executor.Error {
		t.Helper()
		if phase == c.phase {
			c.line.Arm(at)
		}
		err := f()
		if phase == c.phase {
			steps, hit = c.line.Steps()
			c.line.Mend()
		}
		if err == nil {
			return nil
		}
		var e *executor.Error
		if !errors.As(err, &e) || e.Kind != executor.ErrUnavailable || !hit {
			t.Fatalf("%s: got %v, want nil or, if it is cut, %v", phase, err, executor.ErrUnavailable)
		}
		return e
	}

	var s executor.Session
	if e := during("create", func() (err error) { s, err = x.Create(t.Context(), executor.Spec{}); return err }); e != nil {
		if e.Ran != executor.RanNo || !executor.Retryable(e) {
			t.Errorf("create: got %v, ran %v, want something to try again", e, e.Ran)
		}
		return steps
	}
	var r *executor.Result
	e := during("run", func() (err error) {
		r, err = s.Run(t.Context(), executor.Request{Code: "with open('/tmp/trace', 'a') as f: f.write('x')\nprint(6*7)"}, nil)
		return err
	})
	// The session finds its sandbox again, and this comes after what may still run there.
	look := executor.Request{Code: "with open('/tmp/trace', 'a+') as f: f.seek(0); print(f.read())"}
	traces, err := s.Run(t.Context(), look, nil)
	if hit && errors.Is(err, executor.ErrUnavailable) {
		traces, err = s.Run(t.Context(), look, nil)
	}
	check(t, err)
	trace := strings.TrimSpace(traces.Stdout.String())
	switch {
	case traces.Status != executor.StatusOK || len(trace) > 1:
		t.Errorf("a later run: got %+v, trace %q", outcomeOf(traces, nil), trace)
	case e == nil && (r.Status != executor.StatusOK || r.Stdout.String() != "42\n" || trace == ""):
		t.Errorf("run: got %+v, trace %q", outcomeOf(r, nil), trace)
	case e == nil:
	case e.Ran == executor.RanYes && (r == nil || r.Status != executor.StatusLost || trace == ""), e.Ran == executor.RanNo && (r != nil || trace != ""):
		t.Errorf("run: got %v, ran %v, %+v, trace %q", e, e.Ran, outcomeOf(r, e), trace)
	}
	if e := during("close", s.Close); e != nil {
		check(t, s.Close())
	}
	if left := containers(t, c.engine, owner); len(left) > 0 {
		t.Errorf("closed, and containers are left: %q", left)
	}
	return steps
}
