package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// Text that is typed while code runs that does not read it is there at the next prompt, whatever
// the backend reads ahead. Text that the code reads is not.
func TestReplKeepsWhatIsTypedAhead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args        []string
		docker      bool
		busy, asked string // busy prints "on" and runs for a while; asked reads a line, prints "on", and runs on
		prompt      string
	}{
		"docker": {docker: true, prompt: ">>> ",
			busy: `import time; print("o" + "n"); time.sleep(1)`, asked: `n = input("name" + "? "); print("o" + "n"); time.sleep(1)`},
		"docker-javascript": {args: []string{"--language", "js"}, docker: true, prompt: "> ",
			busy:  `console.log("o" + "n"); await new Promise(r => setTimeout(r, 1000))`,
			asked: `b = Buffer.alloc(6); console.log("name" + "? "); fs.readSync(0, b); n = String(b).trim(); console.log("o" + "n"); await new Promise(r => setTimeout(r, 1000))`},
		"pyodide": {args: []string{"--backend", "pyodide"}, prompt: ">>> ",
			busy: `import time; print("o" + "n"); time.sleep(1)`, asked: `n = input("name" + "? "); print("o" + "n"); time.sleep(1)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.docker {
				_, config := boxes(t)
				c.args = append(c.args, "--config", config)
			} else if err := installed(t, append([]string{"setup"}, c.args...)...).Run(); err != nil { // it may take longer than a prompt
				t.Fatal(err)
			}
			p := installed(t, append([]string{"repl"}, c.args...)...)
			s := onTerminal(t, p)
			s.see(c.prompt)
			s.keys(c.busy + "\r")
			s.see("on\r\n")
			s.keys("6 * 7\r8 * 9\r")
			s.see("42\r\n", c.prompt, "72\r\n", c.prompt)
			s.keys(c.asked + "\r")
			s.see("name? ")
			s.keys("world\r")
			s.see("on\r\n")
			s.keys("'hello ' + n\r")
			s.see("hello world", c.prompt)
			s.keys("7 * 11\r")
			s.see("77\r\n", c.prompt)
			s.keys("\x04")
			s.ends(0)
			want := strings.Join([]string{c.busy, "6 * 7", "8 * 9", c.asked, "'hello ' + n", "7 * 11", ""}, "\n")
			if got := read(t, filepath.Join(p.Dir, "state/execbroker/history")); got != want {
				t.Errorf("got the lines %q, want %q", got, want)
			}
		})
	}
}

func TestKeyboardInputIsBounded(t *testing.T) {
	text := strings.Repeat("x", maxAhead) + "the end"
	for _, c := range []struct {
		taken int64
		want  string
	}{
		{-1, ""},
		{maxAhead, "the end"},
		{maxAhead + 7, ""},
		{1 << 40, ""},
		{0, text[7:]},
	} {
		k := newKeyboardInput(io.NopCloser(strings.NewReader(text)))
		if _, err := io.Copy(io.Discard, k); err != nil {
			t.Fatal(err)
		}
		k.Taken(c.taken)
		if got := string(k.close()); got != c.want {
			t.Errorf("%d taken: got %d bytes, want %d", c.taken, len(got), len(c.want))
		}
	}
}
