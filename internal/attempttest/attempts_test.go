package attempttest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/security/attempts.md")

// tests returns the names of the tests that make the attempts of a group on a backend.
func tests(group, backend string) string {
	switch own := map[string]string{
		Files + " bubblewrap": "bubblewrap.TestAttacksOnFiles", Floods + " bubblewrap": "bubblewrap.TestFloods",
		Floods + " docker": "docker.TestFloods", Packages + " docker": "docker.TestPoison", Outliving + " docker": "docker.TestOutlive",
	}; {
	case own[group+" "+backend] != "":
		return own[group+" "+backend]
	case group == Floods || group == Packages || group == Outliving:
		return ""
	case backend == "gvisor":
		return "docker.TestAttemptsOfGVisor"
	case backend == "docker", backend == "bubblewrap":
		return backend + ".TestAttacks"
	}
	return backend + ".TestAttempts"
}

// backends have columns.
var backends = []string{"docker", "gvisor", "bubblewrap", "flymachines", "e2b"}

// protections are the names of docs/security/docker.md.
var protections = map[string]string{
	"capabilities": "no capability", "devices": "no device, and the control group of devices", "ipc-namespace": "`IpcMode: none`",
	"limits": "the limits", "masks": "masked and read-only paths", "network": "`NetworkMode: none`", "no-mounts": "no mount of the host",
	"no-new-privileges": "`no-new-privileges`", "pid-namespace": "a PID namespace of its own", "read-only": "`ReadonlyRootfs`",
	"rights": "the rights of the image", "seccomp": "the filters of system calls", "seccomp and capabilities": "the filters of system calls, and no capability",
	"seccomp and limits": "the filters of system calls, and the limits", "uid": "the uid of the code", "": "the supervisor",
}

func page(t *testing.T) string {
	var b strings.Builder
	all := map[string]int{}
	for _, g := range Groups() {
		for _, backend := range backends {
			if tests(g.Name, backend) != "" {
				all[backend] += len(g.Attempts)
			}
		}
	}
	fmt.Fprintf(&b, `# Attempts

What attackers try inside a sandbox, and how it ends: %d attempts on Docker, %d of them also
with gVisor, %d on bubblewrap, %d on Fly's emulator and %d on the stand-in for E2B. The emulator
and the stand-in run containers, so their results say no more about the provider's machines than
that. Made by %s. <!-- no claim -->

A cell says how the attempt ends: with the name of the kernel's error, or with what the attempt
itself reports. Several words are for different kernels. "ok" means that the attempt gets what it
wants; it harms at most the kernel of its own machine, or gVisor, which is the sandbox's own, and on
bubblewrap it makes files that count as memory. On Docker each attempt is made twice: in a session,
and in a container that lacks the protection of its row, where it has to end differently. A kernel
that does not have the feature answers ENOSYS or ENOENT both times. <!-- no claim -->
`, all["docker"], all["gvisor"], all["bubblewrap"], all["flymachines"], all["e2b"], "`go test ./internal/attempttest -update`")
	for _, g := range Groups() {
		if len(g.Attempts) == 0 {
			continue
		}
		var columns, names []string
		for _, backend := range backends {
			if name := tests(g.Name, backend); name != "" {
				columns, names = append(columns, backend), append(names, "`"+name+"`")
			}
		}
		if err := Says("../..", g.Claim); err != nil {
			t.Errorf("%s: %v", g.Name, err)
		}
		fmt.Fprintf(&b, "\n## %s%s\n\n%s\n%s\n\n| Attempt | Stopped on Docker by | %s |\n|---|---|%s\n",
			strings.ToUpper(g.Name[:1]), g.Name[1:], g.Aim, Aimed(g.Claim), strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
		seen := map[string]bool{}
		for i, a := range g.Attempts {
			protection, ok := protections[a.Without]
			if !ok || seen[a.Name] {
				t.Errorf("%s/%s: no protection %q, or the name is repeated", g.Name, a.Name, a.Without)
			}
			seen[a.Name] = true
			fmt.Fprintf(&b, "| `%s` | %s |", a.Name, protection)
			for _, backend := range columns {
				fmt.Fprintf(&b, " %s |", strings.ReplaceAll(Of(g.Name, backend)[i].Stopped, "|", ", "))
			}
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "\n(tests of each row:\n%s)\n", strings.Join(names, ",\n"))
	}
	return b.String()
}

// TestPage checks that the page about attempts is up to date.
func TestPage(t *testing.T) {
	const name = "../../docs/security/attempts.md"
	want := page(t)
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the list makes of it (%v); renew it with go test ./internal/attempttest -update", name, err)
	}
	for backend, words := range elsewhere {
		for key := range words {
			group, attempt, _ := strings.Cut(key, "/")
			found := false
			for _, a := range Of(group, backend) {
				found = found || a.Name == attempt
			}
			if !found {
				t.Errorf("%s: no attempt %s", backend, key)
			}
		}
	}
}
