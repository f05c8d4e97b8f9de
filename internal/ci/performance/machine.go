package performance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// programs say which version they have.
var programs = [][]string{
	{"python3", "--version"},
	{"node", "--version"},
	{"bwrap", "--version"},
	{"docker", "version", "--format", "Docker engine {{.Server.Version}} ({{.Server.Os}}/{{.Server.Arch}}, kernel {{.Server.KernelVersion}})"},
}

// machine says what the figures were measured on, a line each. What does not answer has none.
func machine(ctx context.Context) []string {
	lines := []string{fmt.Sprintf("%s, %d processors, %s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(), memory())}
	lines = append(lines, "commit "+commit(ctx)+", "+runtime.Version())
	for _, p := range programs {
		if out, err := exec.CommandContext(ctx, p[0], p[1:]...).Output(); err == nil {
			line, _, _ := bytes.Cut(out, []byte("\n"))
			lines = append(lines, strings.TrimSpace(string(line)))
		}
	}
	return lines
}

// commit returns the name of the commit that is checked out, or "unknown".
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=10").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// memory says how much the machine has.
func memory() string {
	var kib int64
	fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kib)
	return fmt.Sprintf("%.0f GiB of memory", float64(kib)/(1<<20))
}

// field returns what stands behind a name in a file of the kernel, or "unknown".
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
