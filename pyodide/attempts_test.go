package pyodide

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/attempttest"
)

var update = flag.Bool("update", false, "write docs/security/pyodide-attempts.md")

// attemptGroup is a section of the attempts in one language.
type attemptGroup struct {
	title    string
	claim    string // the sentence that they try to make false: see attempttest.Says
	attempts []attempt
	tidy     bool // what is refused has changed nothing of the language, so the next attempt may have the session
}

// Sentences of SECURITY.md and of the threat model.
const (
	saysRoots   = "WebAssembly without imports that reach the host, in a Deno worker without permissions"
	saysNothing = "none of them is in the sandbox, and there is no network without a policy"
	saysNetwork = "Without a network policy there is no network."
	saysHostile = "The library parses every byte that comes out of a sandbox as hostile."
	saysLeaves  = "Code that leaves a sandbox, or gets more than its limits, its network or its user may have, is a vulnerability"
	saysLimits  = "limits that every session has"
)

func pythonGroups() []attemptGroup {
	return []attemptGroup{
		{title: "evaluate JavaScript", claim: saysRoots, attempts: evaluation},
		{title: "reach environment, files, programs and storage", claim: saysNothing, attempts: surroundings},
		{title: "reach a network or another worker", claim: saysNetwork, attempts: network},
		{title: "speak the protocol of the host", claim: saysHostile, attempts: protocol},
		{title: "spoil what the host uses", claim: saysHostile, attempts: pollution},
		{title: "replace what the language has", claim: saysHostile, attempts: fixed},
		{title: "go on after the run", claim: saysLeaves, attempts: left},
		{title: "break, flood or hang the session", claim: saysLimits, attempts: harm},
	}
}

func javascriptGroups() []attemptGroup {
	return []attemptGroup{
		{title: "import and evaluate", claim: saysRoots, attempts: modules, tidy: true},
		{title: "reach environment, files, programs and storage", claim: saysNothing, attempts: scriptSurroundings, tidy: true},
		{title: "reach a network or another worker", claim: saysNetwork, attempts: scriptNetwork, tidy: true},
		{title: "get at objects of the host", claim: saysLeaves, attempts: realms},
		{title: "speak the protocol of the host", claim: saysHostile, attempts: scriptProtocol},
		{title: "spoil what the host uses", claim: saysHostile, attempts: scriptPollution},
		{title: "break, flood or hang the session", claim: saysLimits, attempts: scriptHarm},
	}
}

func attemptsOf(groups []attemptGroup) (all []attempt) {
	for _, g := range groups {
		for _, a := range g.attempts {
			a.tidy = g.tidy
			all = append(all, a)
		}
	}
	return all
}

func pythonAttempts() []attempt { return attemptsOf(pythonGroups()) }

func javascriptAttempts() []attempt { return attemptsOf(javascriptGroups()) }

// outcome returns how an attempt ends here, as check expects it.
func (a attempt) outcome() string {
	switch {
	case !a.lost:
		return "refused; the session works on"
	case a.wall > 0:
		return "nothing outside; the session may be stopped, or lose its state"
	}
	return "nothing outside; the session may lose its state"
}

// attemptsPage returns the page that lists the attempts.
func attemptsPage() string {
	var b strings.Builder
	py, js := pythonAttempts(), javascriptAttempts()
	fmt.Fprintf(&b, "# Attempts on Pyodide\n\n"+
		"What code tries in a session of the [pyodide backend](pyodide.md), and how it ends: %d attempts\n"+
		"from Python, %d from JavaScript, and %d sequences of frames from a worker that an attacker\n"+
		"controls. Made by `go test ./pyodide -run TestAttemptsAreListed -update`. <!-- no claim -->\n\n"+
		"The second column names the hosts without our layers in which the attempt gets out. `plain` is\n"+
		"Pyodide as it comes, or a plain worker, in a Deno that may do everything. `permissions` is a Deno\n"+
		"that may do nothing, `no-eval` one that evaluates nothing, `system` one behind the operating\n"+
		"system's layer, and `realm` our realm in a Deno that may do everything. Where the column is\n"+
		"empty, the attempt is about something that only our host has, or about harm to the session.\n"+
		"(test: `pyodide.TestAttemptsWork`)\n", len(py), len(js), len(forged))
	for _, l := range []struct {
		name   string
		groups []attemptGroup
	}{{"Python", pythonGroups()}, {"JavaScript", javascriptGroups()}} {
		for _, g := range l.groups {
			fmt.Fprintf(&b, "\n## %s: %s\n\n%s\n\n| Attempt | Gets out in | Here |\n|---|---|---|\n", l.name, g.title, attempttest.Aimed(g.claim))
			for _, a := range g.attempts {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", a.name, strings.Join(a.works, ", "), a.outcome())
			}
			b.WriteString("\n(test of each row: `pyodide.TestEscape`)\n")
		}
	}
	b.WriteString("\n## Forged frames\n\n" + attempttest.Aimed(saysHostile) + "\n\n| Frames | The run ends as |\n|---|---|\n")
	for _, f := range forged {
		end := "killed or timed out"
		if f.status != "" {
			end = strings.TrimSuffix(fmt.Sprintf("%s, %s", f.status, f.reason), ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.name, end)
	}
	b.WriteString("\n(test of each row: `pyodide.TestForgedFrames`)\n")
	return b.String()
}

// TestAttemptsAreListed checks that the page says of each attempt what the tests expect.
func TestAttemptsAreListed(t *testing.T) {
	const file = "../docs/security/pyodide-attempts.md"
	want := attemptsPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the tests say (%v): run go test ./pyodide -run TestAttemptsAreListed -update", file, err)
	}
	if n := len(pythonAttempts()) + len(javascriptAttempts()) + len(forged); n < 200 {
		t.Errorf("%d attempts", n)
	}
	for _, groups := range [][]attemptGroup{pythonGroups(), javascriptGroups()} {
		for _, g := range groups {
			if err := attempttest.Says("..", g.claim); err != nil {
				t.Errorf("%s: %v", g.title, err)
			}
		}
		seen := map[string]bool{}
		for _, a := range attemptsOf(groups) {
			if seen[a.name] {
				t.Errorf("%s is there twice", a.name)
			}
			seen[a.name] = true
		}
	}
}

// TestAttemptsAreCounted checks the numbers in the documentation.
func TestAttemptsAreCounted(t *testing.T) {
	text, err := os.ReadFile("../docs/security/pyodide.md")
	if err != nil {
		t.Fatal(err)
	}
	working := func(all []attempt) (n int) {
		for _, a := range all {
			if len(a.works) > 0 {
				n++
			}
		}
		return n
	}
	py, js := pythonAttempts(), javascriptAttempts()
	for _, want := range []string{
		fmt.Sprintf("%d attempts from Python and %d from JavaScript", len(py), len(js)),
		fmt.Sprintf("%d of Python and %d of JavaScript", working(py), working(js)),
	} {
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
			t.Errorf("docs/security/pyodide.md does not say %q", want)
		}
	}
}
