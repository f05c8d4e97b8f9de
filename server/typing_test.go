package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// begun is a run whose events are read while it is in progress.
type begun struct {
	world
	path   string // path of the run
	events *bufio.Scanner
	all    string // all output so far
}

func (w world) begin(session string, q RunRequest) *begun {
	w.Helper()
	data, err := json.Marshal(q)
	if err != nil {
		w.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.h.URL+session+"/run/stream", strings.NewReader(string(data)))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+alice)
	res, err := w.h.Client().Do(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		w.Fatalf("got %d", res.StatusCode)
	}
	return &begun{world: w, path: session + "/runs/" + q.ID, events: bufio.NewScanner(res.Body)}
}

// wait reads events until the run has written text. If text is "", it reads until the result and
// returns it.
func (b *begun) wait(text string) (res Result) {
	b.Helper()
	name := ""
	for text == "" || !strings.Contains(b.all, text) {
		if !b.events.Scan() {
			b.Fatalf("the events ended at %q, %v", b.all, b.events.Err())
		}
		line := b.events.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case ok && name == "stdout":
			b.all += string(decode[executor.Event](b.T, data).Data)
		case ok && name == "done":
			return decode[Result](b.T, data)
		case ok && name == "error":
			b.Fatal(data)
		}
	}
	return res
}

// Input arrives while the code runs, until the client closes it.
func TestInput(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{BodyTime: forever})
	session := w.session("{}")
	run := w.begin(session, RunRequest{ID: "r", Language: executor.Python, Input: true, Code: "print(\"ready\")\nprint(readline())\nprint(readline())\nprint(readline())"})
	run.wait("ready")
	w.want(http.StatusNoContent, "POST", run.path+"/input", "one\ntw")
	run.wait("one")
	w.want(http.StatusNoContent, "POST", run.path+"/input?end=true", "o\n")
	if res, got := w.do("POST", run.path+"/input", "more"); res.StatusCode != http.StatusConflict && res.StatusCode != http.StatusNotFound {
		t.Errorf("after the end: got %d %s", res.StatusCode, got)
	}
	if res := run.wait(""); string(res.Stdout) != "ready\none\ntwo\nnull\n" || res.Status != executor.StatusOK {
		t.Errorf("got %+v", res)
	}
	waittest.Until(t, "the run is gone", func() error { // a moment after its result
		if res, got := w.do("POST", run.path+"/input", "late"); res.StatusCode != http.StatusNotFound {
			return fmt.Errorf("got %d %s", res.StatusCode, got)
		}
		return nil
	})
	w.want(http.StatusConflict, "POST", session+"/run", `{"id": "r", "language": "python", "code": "1"}`) // the ID is used
}

// Input that is not allowed or does not fit is refused and changes nothing.
func TestInputRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{BodyTime: 2 * time.Second})
	session := w.session("{}")
	for _, bad := range []string{`{"input": true, "code": "1"}`, `{"id": "x", "input": true, "stdin": "y", "code": "1"}`} {
		w.want(http.StatusBadRequest, "POST", session+"/run", bad)
	}
	w.want(http.StatusBadRequest, "POST", "/v1/run", `{"id": "x", "input": true, "code": "1"}`)
	without := w.begin(session, RunRequest{ID: "without", Language: executor.Python, Code: "print(\"ready\")\nforever()"})
	without.wait("ready")
	has(t, w.want(http.StatusConflict, "POST", without.path+"/input", "x"), `"kind":"no-input"`)
	has(t, w.want(http.StatusConflict, "PUT", without.path+"/terminal", `{"rows": 1, "columns": 1}`), `"kind":"no-terminal"`)
	w.want(http.StatusNotFound, "POST", without.path+"/input", "x", "Authorization", "Bearer "+bob)
	w.want(http.StatusNotFound, "POST", session+"/runs/other/input", "x")
	deaf := w.begin(w.session("{}"), RunRequest{ID: "deaf", Language: executor.Python, Input: true, Code: "print(\"ready\")\nforever()"})
	deaf.wait("ready")
	w.want(http.StatusRequestEntityTooLarge, "POST", deaf.path+"/input", strings.Repeat("x", maxPiece+1))
	for sent := 0; ; sent++ {
		res, got := w.do("POST", deaf.path+"/input", strings.Repeat("x", maxPiece))
		if res.StatusCode == http.StatusConflict {
			has(t, got, `"kind":"busy"`)
			break
		}
		if res.StatusCode != http.StatusNoContent || sent > 1000 {
			t.Fatalf("got %d %s after %d pieces that nobody reads", res.StatusCode, got, sent)
		}
	}
}

// A client can change the size of the terminal of a run in progress.
func TestResize(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	run := w.begin(w.session("{}"), RunRequest{
		ID: "r", Input: true, Terminal: &executor.TerminalSize{Rows: 10, Columns: 20},
		Command: []string{"script", "print(terminal())\nwhile True:\n\tresized()\n\tprint(terminal())"},
	})
	run.wait("10 20")
	w.want(http.StatusBadRequest, "PUT", run.path+"/terminal", `{"rows": 0, "columns": 1}`)
	w.want(http.StatusBadRequest, "PUT", run.path+"/terminal", `{"rows": 1, "columns": 1, "depth": 1}`)
	w.want(http.StatusNoContent, "PUT", run.path+"/terminal", `{"rows": 30, "columns": 40}`)
	run.wait("30 40")
}
