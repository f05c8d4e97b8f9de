package jupyter

import (
	"fmt"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// The messages of a cell, in both framings.
func TestExecute(t *testing.T) {
	for name, f := range map[string]framing{"json": framingJSON, "v1": framingV1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fake.Options{}, Config{})
			c := w.connect(w.start("python3"), f)
			c.has(c.ends(c.send(shell, "kernel_info_request", struct{}{})), isBusy, `shell kernel_info_reply {"banner"`)
			c.has(c.run("print(1)\neprint(2)\ndisplay(show(\"text/html\", \"<b>\"))\n6*7"), isBusy,
				`iopub execute_input {"code":"print(1)`,
				`iopub stream {"name":"stdout","text":"1\n"}`,
				`iopub stream {"name":"stderr","text":"2\n"}`,
				`iopub display_data {"data":{"text/html":"\u003cb\u003e"},"metadata":{},"transient":{}}`,
				`iopub execute_result {"data":`,
				`shell execute_reply {"status":"ok","execution_count":1,"payload":[],"user_expressions":{}}`, isIdle)
			c.has(c.run("throw(\"ValueError\", \"no\")"), `iopub error {"ename":"ValueError","evalue":"no","traceback":[`, `shell execute_reply {"status":"error","ename":"ValueError"`)
			c.has(c.run("exit(3)"), `shell execute_reply {"status":"error","ename":"SystemExit","evalue":"3"`)
			c.has(c.run("print(recall(\"x\", \"none\"))\nx = 1"), `iopub stream {"name":"stdout","text":"none\n"}`, `shell execute_reply {"status":"ok","execution_count":4`)
			c.has(c.run("x"), `iopub execute_result {"data":{"application/json":1,"text/plain":"1"},"metadata":{},"execution_count":5}`)
			silent := c.send(shell, "execute_request", map[string]any{"code": "7", "silent": true, "user_expressions": map[string]string{"a": "1"}})
			if all := strings.Join(c.ends(silent), "\n"); strings.Contains(all, "execute_input") || strings.Contains(all, "execute_result") || !strings.Contains(all, "evaluates no user_expressions") {
				t.Errorf("got %s", all)
			}
		})
	}
}

// input asks the client of the cell, and no other.
func TestInput(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.start("")
	c, other := w.connect(id, framingV1), w.connect(id, framingJSON)
	question := "display(show(\"" + mimeInput + "\", \"{\\\"prompt\\\": \\\"name? \\\"}\"))\n"
	cell := c.send(shell, "execute_request", map[string]any{"code": question + "print(\"hello \" + readline())"})
	c.until(`stdin input_request {"prompt":"name? ","password":false}`)
	other.send(stdio, "input_reply", map[string]string{"value": "wrong"})
	c.send(stdio, "input_reply", map[string]string{"value": "you\nand"})
	c.has(c.ends(cell), `iopub stream {"name":"stdout","text":"hello you and\n"}`, `shell execute_reply {"status":"ok"`)
	cell = c.send(shell, "execute_request", map[string]any{"code": question + "print(readline())", "allow_stdin": false})
	if all := strings.Join(c.ends(cell), "\n"); strings.Contains(all, "input_request") || strings.Contains(all, "display_data") {
		t.Errorf("got %s", all)
	}
	// The client that was asked goes away: the code finds the end of its input.
	cell = c.send(shell, "execute_request", map[string]any{"code": question + "print(readline())\nprint(\"went on\")"})
	c.until("stdin input_request")
	c.ws.Close()
	other.has(other.ends(cell), `iopub stream {"name":"stdout","text":"went on\n"}`)
}

// Interrupts stop the cell and those that wait, and keep the variables.
func TestInterrupt(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.start("python3")
	c := w.connect(id, framingV1)
	c.run("x = 7")
	for name, interrupt := range map[string]func(){
		"message": func() { c.send(control, "interrupt_request", struct{}{}) },
		"rest":    func() { w.do("POST", "/api/kernels/"+id+"/interrupt", "") },
	} {
		t.Run(name, func(t *testing.T) {
			c.send(shell, "execute_request", map[string]any{"code": "print(1)\nforever()"})
			c.until("iopub stream")
			next := c.send(shell, "execute_request", map[string]any{"code": "print(2)"})
			c.send(control, "kernel_info_request", struct{}{}) // is answered meanwhile, when the cell before has arrived
			c.until("control kernel_info_reply")
			interrupt()
			c.has(c.ends(next), `iopub error {"ename":"KeyboardInterrupt"`, `shell execute_reply {"status":"error","ename":"KeyboardInterrupt"`, `shell execute_reply {"execution_count"`)
			c.has(c.run("x"), `iopub execute_result {"data":{"application/json":7`)
		})
	}
}

// A restart ends the interpreter and what waits for it, and keeps files and connections.
func TestRestart(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.start("python3")
	c := w.connect(id, framingJSON)
	for name, restart := range map[string]func(){
		"rest": func() { ask[kernelModel](w, 200, "POST", "/api/kernels/"+id+"/restart", "") },
		"message": func() {
			c.send(control, "shutdown_request", map[string]bool{"restart": true})
			c.until("control shutdown_reply")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.run("x = 7\nwrite(\"a.txt\", \"kept\")")
			c.send(shell, "execute_request", map[string]any{"code": "print(1)\nforever()"})
			c.until("iopub stream")
			restart()
			c.has(c.run("print(recall(\"x\", \"none\"), read(\"a.txt\"))"), `iopub stream {"name":"stdout","text":"none kept\n"}`, `shell execute_reply {"status":"ok","execution_count":1`)
		})
	}
	c.send(control, "shutdown_request", map[string]bool{"restart": false})
	c.until("control shutdown_reply")
	waittest.Until(t, "the kernel is gone", func() error {
		if got := w.do("GET", "/api/kernels/"+id, "").Code; got != 404 {
			return fmt.Errorf("got %d", got)
		}
		return nil
	})
	ask[any](w, 404, "GET", "/api/kernels/"+id, "")
}

// A client that connects again gets what it has missed, and another client does not.
func TestAway(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	id := w.start("python3")
	path := "/api/kernels/" + id
	for name, test := range map[string]struct{ session, first string }{"same": {"s", `iopub error {"ename":"KeyboardInterrupt"`}, "other": {"t", isBusy}} {
		t.Run(name, func(t *testing.T) {
			c := w.connect(id, framingV1)
			c.send(shell, "execute_request", map[string]any{"code": "print(1)\nforever()"})
			c.until("iopub stream")
			c.ws.Close()
			for ask[kernelModel](w, 200, "GET", path, "").Connections > 0 {
			}
			ask[any](w, 204, "POST", path+"/interrupt", "")
			for ask[kernelModel](w, 200, "GET", path, "").State != idle {
			}
			c = w.connectAs(id, framingJSON, test.session)
			again := c.send(shell, "kernel_info_request", struct{}{})
			if all := c.ends(again); !strings.HasPrefix(all[0], test.first) {
				t.Errorf("got %s", strings.Join(all, "\n"))
			}
			c.ws.Close()
			for ask[kernelModel](w, 200, "GET", path, "").Connections > 0 {
			}
		})
	}
}

// What happens to the sandbox is said, and the next cell runs.
func TestLost(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	c := w.connect(w.start("python3"), framingV1)
	c.has(c.run("die(\"SIGSEGV\")"), `iopub stream {"name":"stderr","text":"The interpreter was restarted: variables are gone.\n"}`, `shell execute_reply {"status":"error","ename":"SandboxError"`)
	c.until(`iopub status {"execution_state":"restarting"}`)
	c.has(c.run("1"), `shell execute_reply {"status":"ok"`)
	w.b.Break(w.b.Sandboxes()[0])
	c.has(c.run("2"), `iopub stream {"name":"stderr","text":"The sandbox was replaced: variables and files are gone.\n"}`, `shell execute_reply {"status":"ok"`)
}

// Questions that run no code of the user, or none at all.
func TestQuestions(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	c := w.connect(w.start("python3"), framingV1)
	c.run("a = 1")
	c.run("b = 2")
	for i, test := range []struct {
		kind    string
		content any
		want    string
	}{
		{"complete_request", map[string]any{"code": "é + x.al", "cursor_pos": 8}, `{"cursor_end":8,"cursor_start":6,"matches":["alpha","alps"],"metadata":{},"status":"ok"}`},
		{"complete_request", map[string]any{"code": "1 + ", "cursor_pos": 4}, `{"cursor_end":4,"cursor_start":4,"matches":[],"metadata":{},"status":"ok"}`},
		{"complete_request", map[string]any{"code": "al", "cursor_pos": -1}, `{"cursor_end":0,"cursor_start":0,"matches":[]`},
		{"inspect_request", map[string]any{"code": "f(a, ", "cursor_pos": 5}, `{"data":{"text/plain":"Type: int"},"found":true`},
		{"inspect_request", map[string]any{"code": "f()", "cursor_pos": 900}, `{"data":{},"found":false`},
		{"is_complete_request", map[string]any{"code": "for i in x:"}, `{"indent":"    ","status":"incomplete"}`},
		{"is_complete_request", map[string]any{"code": "1"}, `{"status":"complete"}`},
		{"history_request", map[string]any{"hist_access_type": "tail", "n": 1}, `{"history":[[1,2,"b = 2"]],"status":"ok"}`},
		{"history_request", map[string]any{"hist_access_type": "range", "start": 1, "stop": 2, "output": true}, `{"history":[[1,1,["a = 1",null]]]`},
		{"history_request", map[string]any{"hist_access_type": "search", "pattern": "*= 2", "n": 5}, `{"history":[[1,2,"b = 2"]]`},
		{"comm_info_request", struct{}{}, `{"comms":{},"status":"ok"}`},
	} {
		id := c.send(shell, test.kind, test.content)
		if got := c.ends(id)[1]; !strings.HasPrefix(got, "shell "+replyTo(test.kind)+" "+test.want) {
			t.Errorf("%d: %s: got %s", i, test.kind, got)
		}
	}
	comm := c.send(shell, "comm_open", map[string]any{"comm_id": "7", "target_name": "jupyter.widget"})
	c.has(c.ends(comm), `iopub comm_close {"comm_id":"7","data":{"reason":"this kernel has no comms"}}`)
	c.send(shell, "no_such_request", struct{}{})
	c.send(iopub, "execute_request", map[string]any{"code": "1"})
	if all := c.run("a"); all[0] != isBusy {
		t.Errorf("got %s", all[0])
	}
	c.has(c.run("1"), `shell execute_reply {"status":"ok","execution_count":4`) // questions are no cells
}

// A message that is not one ends the connection, and not the kernel.
func TestNonsense(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{MaxBody: 4096})
	id := w.start("python3")
	for _, f := range []framing{framingJSON, framingV1} {
		for _, raw := range []string{"[]", "\x00\x00\x00\x01", strings.Repeat("\xff", 64), `{"header": {}}`, fmt.Sprintf(`{"x": %q}`, strings.Repeat("x", 5000))} {
			c := w.connect(id, f)
			if _, err := c.ws.Write([]byte(raw)); err != nil {
				t.Fatal(err)
			}
			if f.payload == 1 || len(raw) > 8 {
				for {
					if _, err := c.next(); err != nil {
						break
					}
				}
			}
			c.ws.Close()
		}
	}
	c := w.connect(id, framingV1)
	c.has(c.run("1"), `shell execute_reply {"status":"ok"`)
}
