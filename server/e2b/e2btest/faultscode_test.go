package e2btest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/server/e2b"
)

const inJavaScript = `"language": "javascript"`

// The trap after a timeout: what is sent at once is never executed, and only says that it is alive.
func TestFaultStuckAfterAbandon(t *testing.T) {
	bubble(t, Faults{StuckAfterAbandon: 50 * time.Millisecond}, e2b.Config{}, func(w world) {
		m := w.create()
		w.leave(m, body("forever()"), time.Second)
		got := w.leave(m, body("print(1)"), 12*time.Second)
		if len(got) != 2 || got[0]["type"] != "keepalive" || got[1]["type"] != "keepalive" {
			t.Errorf("got %v, want keepalives", got)
		}
		time.Sleep(50 * time.Millisecond)
		if got := w.run(w.Context(), m, body("print(2)")); the(got, "stdout") == nil {
			t.Errorf("got %v after a while", got)
		}
	})
}

func TestFaultUnseenDisconnects(t *testing.T) {
	bubble(t, Faults{UnseenDisconnects: true}, e2b.Config{}, func(w world) {
		m := w.create()
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.run(ctx, m, body("sleep(60000)\nkept = 1")) }()
		synctest.Wait()
		begin := time.Now()
		cancel()
		got := w.run(w.Context(), m, body("print(kept)"))
		if waited := time.Since(begin); waited != time.Minute || the(got, "stdout")["text"] != "1\n" {
			t.Errorf("got %v after %v, want the code to go on for a minute", got, waited)
		}
		<-done
	})
}

func TestFaultPastedEnvironment(t *testing.T) {
	for value, want := range map[string]string{
		"plain": "import os; os.environ['K'] = 'plain'\n", "it's": "import os; os.environ['K'] = 'it's'\n",
	} {
		if got := pasted(map[string]string{"K": value}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	w := newWorld(t, Faults{PastedEnvironment: true}, e2b.Config{})
	m := w.create()
	if got := w.run(w.Context(), m, body("print(1)", `"env_vars": {"K": "it's"}`)); the(got, "error") == nil { // of any language but Python it is wrong
		t.Errorf("got %v, want a broken cell", got)
	}
}

// context makes a context in /tmp and returns its ID.
func (w world) context(m made) string {
	w.Helper()
	var x struct{ ID string }
	if err := json.Unmarshal(w.want(200, "POST", "/contexts", `{"cwd": "/tmp"}`, at(m, interpreterPort)...).Body.Bytes(), &x); err != nil {
		w.Fatal(err)
	}
	return x.ID
}

func TestFaultLostDirectory(t *testing.T) {
	w := newWorld(t, Faults{LostDirectory: true}, e2b.Config{})
	m := w.create()
	id := w.context(m)
	for _, want := range []string{"/tmp\n", "/workspace\n"} {
		got := the(w.run(w.Context(), m, body("print(cwd())", fmt.Sprintf(`"context_id": %q`, id))), "stdout")
		if got["text"] != want {
			t.Errorf("got %v, want %q", got, want)
		}
		w.want(200, "POST", "/contexts/"+id+"/restart", "", at(m, interpreterPort)...)
	}
}

// The first execution of a context is the service's own, but in Python.
func TestFaultSilentExecution(t *testing.T) {
	w := newWorld(t, Faults{SilentExecution: true}, e2b.Config{})
	m := w.create()
	for i, want := range []float64{2, 3} {
		if got := the(w.run(w.Context(), m, body("print(1)", inJavaScript)), "number_of_executions"); got["execution_count"] != want {
			t.Errorf("run %d: got %v, want %v", i, got, want)
		}
	}
	if got := the(w.run(w.Context(), m, body("print(1)")), "number_of_executions"); got["execution_count"] != 1.0 {
		t.Errorf("Python: got %v", got)
	}
}

// Who stops JavaScript ends its process, which its numbers do not tell.
func TestFaultReplacedProcesses(t *testing.T) {
	bubble(t, Faults{ReplacedProcesses: true}, e2b.Config{}, func(w world) {
		m := w.create()
		w.run(w.Context(), m, body("kept = 1", inJavaScript))
		w.leave(m, body("forever()", inJavaScript), time.Second)
		got := w.run(w.Context(), m, body(`print(recall("kept", "none"))`, inJavaScript))
		if the(got, "stdout")["text"] != "none\n" || the(got, "number_of_executions")["execution_count"] != 3.0 {
			t.Errorf("got %v", got)
		}
	})
}

// Code in JavaScript that ends its process is never said to have ended.
func TestFaultEndlessExit(t *testing.T) {
	bubble(t, Faults{EndlessExit: true}, e2b.Config{}, func(w world) {
		m := w.create()
		if got := w.run(w.Context(), m, body(`die("SIGKILL")`)); the(got, "end_of_execution") == nil {
			t.Errorf("Python: got %v", got)
		}
		if got := w.leave(m, body(`die("SIGKILL")`, inJavaScript), time.Minute); the(got, "keepalive") == nil || the(got, "end_of_execution") != nil {
			t.Errorf("got %v", got)
		}
		if got := w.run(w.Context(), m, body("print(1)", inJavaScript)); the(got, "stdout") == nil {
			t.Errorf("got %v after it", got)
		}
	})
}

func TestFaultLateNumbers(t *testing.T) {
	w := newWorld(t, Faults{LateNumbers: true}, e2b.Config{})
	got := w.run(w.Context(), w.create(), body("print(1)"))
	if len(got) != 3 || got[0]["type"] != "stdout" || got[1]["type"] != "number_of_executions" || got[1]["execution_count"] != 1.0 {
		t.Errorf("got %v", got)
	}
}

func TestFaultSlowDeletes(t *testing.T) {
	bubble(t, Faults{SlowDeletes: 3 * time.Second}, e2b.Config{}, func(w world) {
		m := w.create()
		id := w.context(m)
		begin := time.Now()
		w.want(200, "DELETE", "/contexts/"+id, "", at(m, interpreterPort)...)
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestFaultSlowContexts(t *testing.T) {
	bubble(t, Faults{SlowContexts: 2 * time.Second}, e2b.Config{}, func(w world) {
		m := w.create()
		begin := time.Now()
		w.context(m)
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
