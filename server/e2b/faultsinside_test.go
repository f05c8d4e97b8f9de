package e2b

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/internal/fake"
)

const inJavaScript = `"language": "javascript"`

// leave runs code whose client leaves after a time, and returns what it has heard.
func (w world) leave(id, body string, after time.Duration) []line {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/execute", strings.NewReader(body))
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", "49999")
	rec, done := httptest.NewRecorder(), make(chan struct{})
	go func() { defer close(done); w.s.ServeHTTP(rec, r) }()
	time.Sleep(after)
	cancel()
	<-done
	return lines(w.T, rec.Body.Bytes())
}

// The first execution of a context is the service's own, but in Python.
func TestFaultSilentExecution(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{SilentExecution: true}})
	id := w.create("").SandboxID
	for i, want := range []float64{2, 3} {
		if got := the(w.run(id, body("print(1)", inJavaScript)), "number_of_executions"); got["execution_count"] != want {
			t.Errorf("run %d: got %v, want %v", i, got, want)
		}
	}
	if got := the(w.run(id, body("print(1)")), "number_of_executions"); got["execution_count"] != 1.0 {
		t.Errorf("Python: got %v", got)
	}
}

// Who stops JavaScript ends its process, which its numbers do not tell.
func TestFaultReplacedProcesses(t *testing.T) {
	bubble(t, fake.Options{}, Config{Faults: Faults{ReplacedProcesses: true}}, func(w world) {
		id := w.create("").SandboxID
		w.run(id, body("kept = 1", inJavaScript))
		w.leave(id, body("forever()", inJavaScript), time.Second)
		got := w.run(id, body(`print(recall("kept", "none"))`, inJavaScript))
		if the(got, "stdout")["text"] != "none\n" || the(got, "number_of_executions")["execution_count"] != 3.0 {
			t.Errorf("got %v", got)
		}
	})
}

// Code in JavaScript that ends its process is never said to have ended.
func TestFaultEndlessExit(t *testing.T) {
	bubble(t, fake.Options{}, Config{Faults: Faults{EndlessExit: true}}, func(w world) {
		id := w.create("").SandboxID
		if got := w.run(id, body(`die("SIGKILL")`)); the(got, "end_of_execution") == nil {
			t.Errorf("Python: got %v", got)
		}
		if got := w.leave(id, body(`die("SIGKILL")`, inJavaScript), time.Minute); the(got, "keepalive") == nil || the(got, "end_of_execution") != nil {
			t.Errorf("got %v", got)
		}
		if got := w.run(id, body("print(1)", inJavaScript)); the(got, "stdout") == nil {
			t.Errorf("got %v after it", got)
		}
	})
}

func TestFaultLateNumbers(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Faults: Faults{LateNumbers: true}})
	id := w.create("").SandboxID
	got := w.run(id, body("print(1)"))
	if len(got) != 3 || got[0]["type"] != "stdout" || got[1]["type"] != "number_of_executions" || got[1]["execution_count"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

func TestFaultSlowDeletes(t *testing.T) {
	bubble(t, fake.Options{}, Config{Faults: Faults{SlowDeletes: 3 * time.Second}}, func(w world) {
		id := w.create("").SandboxID
		x := decode[contextAnswer](t, w.do("POST", "/contexts", `{"cwd": "/tmp"}`, at(id, interpreterPort)...))
		begin := time.Now()
		rec := w.do("DELETE", "/contexts/"+x.ID, "", at(id, interpreterPort)...)
		if took := time.Since(begin); rec.Code != 200 || took != 3*time.Second {
			t.Errorf("got %d after %v", rec.Code, took)
		}
	})
}
