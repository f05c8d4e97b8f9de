//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestReplSearchesHistory(t *testing.T) {
	p := command(t, "repl")
	s := onTerminal(t, p)
	s.see(">>> ")
	for _, line := range []string{"alpha = 1", "beta = 20", "alpha + beta", "# \u00fcber"} {
		s.keys(line + "\r")
		s.see(">>> ")
	}
	// Enter runs the found line, another Ctrl-R finds an older one, and a longer query narrows the
	// search.
	s.keys("\x12alph")
	s.see("(search) alph: alpha + beta")
	s.keys("\r")
	s.see("21\r\n", ">>> ")
	s.keys("\x12alpha\x12")
	s.see("(search) alpha: alpha = 1")
	s.keys("\x7f\x7f\x7f\x7f\x7fbet")
	s.see("(search) bet: alpha + beta")
	s.keys("a =")
	s.see("(search) beta =: beta = 20")
	s.keys("\x12x")
	s.see("(failed search) beta =x: ")
	s.keys("\x7f")
	s.see("(search) beta =: beta = 20")
	s.keys("\x12\u00fcx\x08\x08\x08\x08\x08\x08\x08\x08\u00fc")
	s.see("(search) \u00fc: # \u00fcber")

	// Ctrl-G cancels and restores the line, an arrow continues with the found line, and Ctrl-C
	// discards everything.
	s.keys("\x07")
	s.keys("6 * 7\x12alpha\x07\r")
	s.see("42\r\n", ">>> ")
	s.keys("\x12beta =\x1b[D\x1b[D9\r")
	s.see(">>> ")
	s.keys("beta\r")
	s.see("920\r\n", ">>> ")
	s.keys("\x12beta =\x03")
	s.see("\r\n", ">>> ")
	s.keys("\x12nothing like it\rbeta + 1\r")
	s.see("921\r\n", ">>> ")

	// Pasted text begins no search.
	s.keys("\x1b[200~print(\"a\x12b\")\x1b[201~\r")
	s.see("a", "b\r\n", ">>> ")
	s.keys("exit()\r")
	s.ends(0)
	p.clean(t)
}

func TestReplCompletes(t *testing.T) {
	p := command(t, "repl")
	write(t, p.Dir, "my data.csv", "")
	write(t, p.Dir, "script.py", "print(\"from a file\")")
	write(t, p.Dir, "s\x1b[2J", "")
	s := onTerminal(t, p)
	s.see(">>> ")
	s.keys("particular_name = 41\r")
	s.see(">>> ")
	s.keys("part\t + 1\r")
	s.see("particular_name + 1\r\n", "42\r\n", ">>> ")
	// In the middle of a line, and with several names.
	s.keys("particular_names = 1\r")
	s.see(">>> ")
	s.keys("[1, part]\x1b[D\t\t")
	s.see("particular_name  particular_names\r\n", ">>> ", "[1, particular_name]")
	s.keys("s\x1b[F\r")
	s.see("\r\n", ">>> ")
	s.keys("pri\t\t(7)\r")
	s.see("print(7)\r\n", "7\r\n", ">>> ")
	// Commands, and files of this machine.
	s.keys("%re\t")
	s.see("remove  reset  restart\r\n", ">>> ", "%re")
	s.keys("se\t\r")
	s.see("%reset ", ">>> ")
	s.keys("%ru\ts\t\t")
	s.see("script.py  state/\r\n", ">>> ", "%run s")
	s.keys("c\t\r")
	s.see("%run script.py", "from a file\r\n", ">>> ")
	s.keys("quit()\r")
	s.ends(0)
	p.clean(t)
}

func TestColours(t *testing.T) {
	coloured := []string{"\x1b[2mexecbroker: python", "leaves\x1b[m\r\n", "\x1b[1;32m>>> \x1b[m"}
	for name, c := range map[string]struct {
		env   string
		want  []string
		error string
	}{
		"coloured":  {"NO_COLOR=", coloured, "E: x\x1b[m\r\n"},
		"no-colour": {"NO_COLOR=1", []string{"leaves\r\n" + pasteOn + ">>> "}, "\nE: x\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := onTerminal(t, command(t, "repl"), c.env)
			s.see(c.want...)
			s.keys("throw(\"E\", \"x\")\r")
			s.see(c.error)
			s.see(">>> ")
			s.keys("\x04")
			s.ends(0)
		})
	}
	s := onTerminal(t, command(t, "run", "-c", "throw(\"E\", \"x\")"), "NO_COLOR=", "TERM=dumb")
	s.see("E: x\r\n")
	s.ends(exitFailed)
}

// The language's own commands to exit also leave the repl.
func TestReplLeaves(t *testing.T) {
	for _, line := range []string{"exit()", "quit() ", "exit();"} {
		p := command(t, "repl")
		p.Stdin = strings.NewReader("1\n" + line + "\n2\n")
		if got := p.code(t, p.Run()); got != exitOK || p.out.String() != "1\n" {
			t.Errorf("%s: got exit code %d, %q", line, got, p.out.String())
		}
	}
}

func FuzzSearch(f *testing.F) {
	f.Add("\x12a\x12\x1f\x1e\x12b\x07\u00fc")
	h, err := openHistory(filepath.Join(f.TempDir(), "history"))
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range []string{"a", "ab", "\u00fcber"} {
		h.Add(line)
	}
	f.Fuzz(func(t *testing.T, keys string) {
		s := search{history: h}
		line := ""
		for _, key := range keys {
			if text, pos, ok := s.key(line, key); ok {
				if pos < 0 || pos > len(text) {
					t.Fatalf("got %q, %d", text, pos)
				}
				line = text
			} else if s.on {
				t.Fatalf("%q is not taken", key)
			}
		}
	})
}
