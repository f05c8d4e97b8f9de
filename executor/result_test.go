package executor_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

var fullResult = executor.Result{
	ID: "r", Status: executor.StatusKilled, Reason: executor.ReasonSignal, Signal: "SIGSEGV", ExitCode: -1,
	Exception: &executor.Exception{Type: "E", Message: "m", Traceback: "t", Line: 3},
	Stdout:    executor.Bytes("out"), Stderr: executor.Bytes("\xff"),
	Dropped: []executor.Gap{{Stream: executor.EventStdout, At: 2, Bytes: 1 << 40}},
	Outputs: []executor.Output{{Main: true, Data: executor.MIMEBundle{"text/plain": executor.Bytes("1"), "image/png": executor.Bytes("\x89PNG\xff")}}},
	Artifacts: []executor.Artifact{{
		Name: "a/b.csv", MIME: "text/csv", Size: 3, ModTime: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), Data: executor.Bytes("a,b"),
	}},
	ArtifactsOmitted: 2, LeftRunning: []string{"timer"}, Notices: []string{"a quota is exceeded"}, Cell: 4, StateFresh: true, StateLost: true, FilesLost: true,
	Started: time.Date(2026, 11, 1, 0, 0, 0, 7, time.UTC), Queued: time.Millisecond, Duration: time.Second,
	Usage:  executor.Usage{CPU: time.Second, PeakMemory: 5},
	Origin: executor.Origin{Backend: "b", Session: "s", Route: "r", Assigned: "a"},
}

func roundTrip[T any](t *testing.T, v T) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, v) {
		t.Errorf("%s: got %+v %v, want %+v", text, back, err, v)
	}
}

func TestJSON(t *testing.T) {
	roundTrip(t, fullResult)
	roundTrip(t, executor.Result{ID: "r", Status: executor.StatusOK})
	for _, ev := range []executor.Event{
		{Kind: executor.EventStarted, Cell: 1, Time: fullResult.Started},
		{Seq: 1, Kind: executor.EventStdout, Data: executor.Bytes("x\xff"), Time: fullResult.Started},
		{Seq: 2, Kind: executor.EventOutput, Output: &fullResult.Outputs[0], Time: fullResult.Started},
		{Seq: 3, Kind: executor.EventDone, Result: &fullResult, Time: fullResult.Started},
		{Seq: 4, Kind: "unknown", Time: fullResult.Started},
	} {
		roundTrip(t, ev)
	}
	roundTrip(t, executor.SessionInfo{
		Handle: full, State: executor.SessionDead, Template: "t", Labels: map[string]string{"a": "b"}, Instance: "i",
		Created: full.Created, Expires: full.Created, Limits: executor.Limits{CPUs: 1.5}, Run: full.Run, MaxRun: full.MaxRun, Capabilities: bare,
	})
	v := reflect.ValueOf(fullResult)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is zero in the test of the JSON form", v.Type().Field(i).Name)
		}
	}
}

// TestDurationsAreNamed checks that the JSON names of durations end in _ns.
func TestDurationsAreNamed(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[executor.Result](), reflect.TypeFor[executor.Usage](), reflect.TypeFor[executor.RunLimits](), reflect.TypeFor[executor.Capabilities](),
	} {
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type == reflect.TypeFor[time.Duration]() && !strings.HasSuffix(name, "_ns") {
				t.Errorf("%s.%s is %q in JSON, want a name in _ns", typ, f.Name, name)
			}
		}
	}
}

func TestResultErr(t *testing.T) {
	for name, c := range map[string]struct {
		r    executor.Result
		want string
	}{
		"exception":         {executor.Result{Status: executor.StatusFailed, ExitCode: 1, Exception: &executor.Exception{Type: "KeyError", Message: "'x'"}}, "KeyError: 'x'"},
		"exception-silent":  {executor.Result{Status: executor.StatusFailed, ExitCode: 1, Exception: &executor.Exception{Type: "KeyError"}}, "KeyError"},
		"exit":              {executor.Result{Status: executor.StatusFailed, ExitCode: 3}, "exit status 3"},
		"timeout":           {executor.Result{Status: executor.StatusTimedOut, Reason: executor.ReasonWallTime}, "timed_out: wall-time"},
		"signal":            {executor.Result{Status: executor.StatusKilled, Reason: executor.ReasonSignal, Signal: "SIGSEGV"}, "killed: SIGSEGV"},
		"canceled":          {executor.Result{Status: executor.StatusCanceled}, "canceled"},
		"interrupted-typed": {executor.Result{Status: executor.StatusTimedOut, Reason: executor.ReasonWallTime, Exception: &executor.Exception{Type: "KeyboardInterrupt"}}, "KeyboardInterrupt"},
	} {
		var e *executor.ExitError
		if err := c.r.Err(); !errors.As(err, &e) || err.Error() != c.want || e.Result.Status != c.r.Status {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	if err := (&executor.Result{Status: executor.StatusOK}).Err(); err != nil {
		t.Errorf("got %v of StatusOK", err)
	}
}

func TestBest(t *testing.T) {
	b := fullResult.Outputs[0].Data
	if m, d, ok := b.Best("text/html", "image/png", "text/plain"); !ok || m != "image/png" || d.String() != "\x89PNG\xff" {
		t.Errorf("got %q %q %v", m, d, ok)
	}
	if m, d, ok := b.Best("text/html"); ok || m != "" || d != nil {
		t.Errorf("got %q %q %v of what is not there", m, d, ok)
	}
}

func TestShown(t *testing.T) {
	png := func(s string) executor.Output {
		return executor.Output{Data: executor.MIMEBundle{"image/png": executor.Bytes(s), "text/plain": executor.Bytes("same text")}}
	}
	file := func(mime, s string) executor.Artifact {
		return executor.Artifact{MIME: mime, Size: int64(len(s)), Data: executor.Bytes(s)}
	}
	r := executor.Result{
		Outputs: []executor.Output{png("a"), png("b"), png("b")},
		Artifacts: []executor.Artifact{
			file("image/png", "b"), file("image/png", "a"), file("image/png", "c"), file("image/svg+xml", "a"), file("text/plain", "same text"),
			file("image/png", ""), {MIME: "image/png", Size: 1}, file("image/png", "a"),
		},
	}
	if got, want := r.Shown(), []int{1, 0, -1, -1, 0, -1, -1, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (&executor.Result{}).Shown(); len(got) != 0 {
		t.Errorf("got %v of nothing", got)
	}
}
