//go:build unix

package main

import (
	"testing"

	"github.com/creack/pty"
)

func TestShell(t *testing.T) {
	p := command(t, "shell", "script", "print(\"at\", terminal())\nresized()\nprint(\"now\", terminal())\nprint(\"got\", readline())\ninterrupt()\nprint(\"interrupted\")\nprint(readline())\nexit(3)")
	s := onTerminal(t, p)
	s.see("at 24 80\r\n")
	if err := pty.Setsize(s.f, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	s.see("now 40 120\r\n")
	s.keys("typed\r")
	s.see("typed\r\n", "got typed\r\n")
	s.keys("\x03") // goes to the sandbox; the program ignores it
	s.see("interrupted\r\n")
	s.keys("end\r")
	s.see("end\r\nend\r\n", "exit code 3")
	s.ends(exitFailed)
}

// A command in a shell may never end, but the program ends with its terminal.
func TestShellHungUp(t *testing.T) {
	p := command(t, "shell", "script", "print(\"ready\")\nforever()")
	s := onTerminal(t, p)
	s.see("ready\r\n")
	s.f.Close()
	<-s.done
	if err := p.Wait(); err == nil {
		t.Error("it ended as if nothing had been")
	}
}

func TestShellRefusals(t *testing.T) {
	for name, args := range map[string][]string{"no-terminal": {"shell"}, "json": {"shell", "--json"}} {
		t.Run(name, func(t *testing.T) {
			p := command(t, args...)
			if got := p.code(t, p.Run()); got != exitUsage {
				t.Errorf("got exit code %d: %s", got, p.err.String())
			}
			contains(t, p.out.String()+p.err.String(), "needs a terminal")
		})
	}
}
