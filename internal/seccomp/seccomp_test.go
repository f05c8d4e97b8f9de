package seccomp

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// constants returns the numbers of system calls that golang.org/x/sys has for an architecture.
func constants(t *testing.T, arch string) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(strings.TrimSpace(string(out)), "zsysnum_linux_"+arch+".go")
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				found[strings.ToLower(strings.TrimPrefix(v.Names[0].Name, "SYS_"))] = lit.Value
			}
		}
		return true
	})
	return found
}

// every returns the names of all calls that the filters know.
func every() []string {
	names := append(append(Profile{}.Calls(), Profile{}.Unknown()...), flushes...)
	seen := map[string]bool{}
	for _, p := range []Profile{{}, {CodeFilters: true}} {
		for _, r := range p.Rules() {
			for _, name := range r.Calls {
				seen[name] = true
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(seen)))))
}

func TestNumbers(t *testing.T) {
	for arch, table := range numbers {
		t.Run(arch, func(t *testing.T) {
			want := constants(t, arch)
			got := map[string]string{}
			for _, pair := range strings.Fields(table) {
				name, n, _ := strings.Cut(pair, "=")
				got[name] = n
			}
			for _, name := range every() {
				if got[name] != want[name] {
					t.Errorf("%s: got %q, want %q", name, got[name], want[name])
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("numbers of calls that are in no list: %v", got)
			}
		})
	}
}

// verdict runs a filter as the kernel does.
func verdict(t *testing.T, p []byte, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data, number)
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var a uint32
	for pc := 0; pc < len(p)/instruction; pc++ {
		i := p[instruction*pc:]
		k := binary.LittleEndian.Uint32(i[4:])
		holds := false
		switch binary.LittleEndian.Uint16(i) {
		case load:
			a = binary.LittleEndian.Uint32(data[k:])
			continue
		case and:
			a &= k
			continue
		case jump:
			pc += int(k)
			continue
		case answer:
			return k
		case equal:
			holds = a == k
		case atLeast:
			holds = a >= k
		default:
			t.Fatalf("instruction %d: unknown code", pc)
		}
		if holds {
			pc += int(i[2])
		} else {
			pc += int(i[3])
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

// The numbers of the calls in the tests, and those of two profiles.
const (
	mount, mmap, clone, socket, pair, setsockopt, personality, prctl = 165, 9, 56, 41, 53, 54, 135, 157
	shmget, sync, memfd, syncfs, seccomp, clone3, ring               = 29, 162, 319, 306, 317, 435, 425
)

var filtered = Profile{CodeFilters: true}

// question is a call, and what filters answer.
type question struct {
	name   string
	number uint32
	args   []uint64
	want   uint32
}

// shared are what the list and the filter of the supervisor answer alike.
func shared() []question {
	no := uint32(fail | eafnosupport)
	return []question{
		{"read", 0, nil, permit},
		{"times", 100, nil, permit},
		{"io-uring", ring, nil, unknown},
		{"unix", socket, []uint64{1, 1, 0}, permit},
		{"inet6", socket, []uint64{10, 1, 6}, permit},
		{"vsock", socket, []uint64{40, 1, 0}, no},
		{"vsock-wide", socket, []uint64{40 | 1<<32, 1, 0}, no},
		{"unix-wide", socket, []uint64{1 | 1<<32, 1, 0}, permit}, // the kernel does not look there
		{"no-family", socket, []uint64{1 << 20, 1, 0}, refuse},
		{"routes", socket, []uint64{16, 3, 0}, permit},
		{"events", socket, []uint64{16, 3, 15}, no},
		{"pair-unix", pair, []uint64{1, 1, 0}, permit},
		{"pair-events", pair, []uint64{16, 3, 15}, no},
		{"file-system-flush", syncfs, nil, refuse},
		{"flush", sync, nil, refuse},
		{"mapping", mmap, []uint64{0, 4096, 3, 0x22}, permit},
		{"huge-mapping", mmap, []uint64{0, 4096, 3, 0x40022}, refuse},
		{"huge-mapping-wide", mmap, []uint64{0, 4096, 3, 0x40022 | 1<<40}, refuse},
		{"file", memfd, []uint64{0, 3}, permit},
		{"huge-file", memfd, []uint64{0, 4}, refuse},
		{"segment", shmget, []uint64{0, 1, 0o1600}, permit},
		{"huge-segment", shmget, []uint64{0, 1, 0o5600}, refuse},
		{"filter-of-a-socket", setsockopt, []uint64{3, 1, 26, 0, 16}, refuse},
		{"filter-by-wide-numbers", setsockopt, []uint64{3, 1 | 1<<32, 26 | 1<<32, 0, 16}, refuse},
		{"ipv6-only", setsockopt, []uint64{3, 41, 26, 0, 4}, permit}, // another level has the same number
		{"no-level", setsockopt, []uint64{3, 1 | 1<<31, 26, 0, 16}, refuse},
		{"no-option", setsockopt, []uint64{3, 1, 26 | 1<<31, 0, 16}, refuse},
	}
}

// ask puts questions to a filter.
func ask(t *testing.T, p []byte, arch uint32, questions []question) {
	t.Helper()
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			if got := verdict(t, p, arch, q.number, q.args...); got != q.want {
				t.Errorf("got %#x, want %#x", got, q.want)
			}
		})
	}
	for option := range uint64(128) {
		want := uint32(permit)
		if slices.Contains(filterOptions, option) {
			want = refuse
		}
		if got := verdict(t, p, arch, setsockopt, 3, 1, option); got != want {
			t.Errorf("option %d of a socket: got %#x, want %#x", option, got, want)
		}
		if got := verdict(t, p, arch, setsockopt, 3, 6, option); got != permit {
			t.Errorf("option %d of TCP: got %#x", option, got)
		}
	}
}

// filterCalls are what filters answer to who wants to install another.
var filterCalls = []struct {
	name    string
	number  uint32
	args    []uint64
	of, yes uint32 // the strict profile, that with CodeFilters
}{
	{"name", prctl, []uint64{15, 0}, permit, permit},
	{"tracer", prctl, []uint64{0x59616d61, 1}, permit, permit},
	{"unheard-of-option", prctl, []uint64{0x60000000, 1}, refuse, permit},
	{"filter", prctl, []uint64{22, 2}, fail | einval, permit},
	{"filter-by-a-wide-number", prctl, []uint64{22 | 1<<32, 2}, fail | einval, permit},
	{"filter-of-all-threads", seccomp, []uint64{1, 1}, unknown, permit},
	{"listener", seccomp, []uint64{1, 8}, unknown, refuse},
	{"listener-by-a-wide-number", seccomp, []uint64{1, 8 | 1<<32}, unknown, refuse},
}

func TestFilter(t *testing.T) {
	p, err := Profile{}.Filter("amd64")
	if err != nil {
		t.Fatal(err)
	}
	arch := auditArch["amd64"]
	ask(t, p, arch, append(shared(), []question{
		{"mount", mount, nil, refuse},
		{"unheard-of", 9999, nil, refuse},
		{"x32", x32, nil, refuse},
		{"clone3", clone3, nil, unknown},
		{"thread", clone, []uint64{0x3d0f00}, permit},
		{"user-namespace", clone, []uint64{0x10000000 | 17}, refuse},
		{"usual", personality, []uint64{0}, permit},
		{"question", personality, []uint64{lowWord}, permit},
		{"old", personality, []uint64{0x20000}, refuse},
	}...))
	if got := verdict(t, p, 0x40000003, 0); got != unknown {
		t.Errorf("another architecture: got %#x", got)
	}
	open, err := filtered.Filter("amd64")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range filterCalls {
		if got := verdict(t, p, arch, c.number, c.args...); got != c.of {
			t.Errorf("%s: got %#x, want %#x", c.name, got, c.of)
		}
		if got := verdict(t, open, arch, c.number, c.args...); got != c.yes {
			t.Errorf("%s with filters of code: got %#x, want %#x", c.name, got, c.yes)
		}
	}
	// Every number below 600 is answered as its name says, so no jump goes astray.
	number, byArgument, known := map[string]bool{}, map[string]bool{}, constants(t, "amd64")
	for _, name := range (Profile{}).Calls() {
		number[known[name]] = true
	}
	for _, r := range (Profile{}).Rules() {
		for _, name := range r.Calls {
			byArgument[known[name]] = true
		}
	}
	for n := range uint32(600) {
		if got, want := verdict(t, p, arch, n) == permit, number[fmt.Sprint(n)]; got != want && !byArgument[fmt.Sprint(n)] {
			t.Errorf("call %d: allowed is %v, want %v", n, got, want)
		}
	}
}

// TestNarrow asks the filter that the supervisor installs.
func TestNarrow(t *testing.T) {
	arch := auditArch["amd64"]
	for _, p := range []Profile{{}, filtered} {
		all, err := p.Narrow()
		if err != nil || len(all) != len(numbers) {
			t.Fatalf("%d programs, %v", len(all), err)
		}
		f := all["x86_64"]
		ask(t, f, arch, append(shared(), []question{
			{"mount", mount, nil, permit},
			{"x32", x32, nil, unknown},
			{"clone3", clone3, nil, permit},
			{"user-namespace", clone, []uint64{0x10000000 | 17}, permit},
			{"old", personality, []uint64{0x20000}, permit},
		}...))
		if got := verdict(t, f, 0x40000003, 0); got != unknown {
			t.Errorf("another architecture: got %#x", got)
		}
		for _, c := range filterCalls {
			want := c.of
			if p.CodeFilters {
				want = c.yes
			}
			if got := verdict(t, f, arch, c.number, c.args...); got != want {
				t.Errorf("%s: got %#x, want %#x", c.name, got, want)
			}
		}
	}
}

// TestExcept: exactly the numbers that are not excepted have a comparison that holds.
func TestExcept(t *testing.T) {
	for _, values := range [][]uint64{{0}, {22}, filterOptions, {1, 2, 10, 16}, {127}, nil} {
		args := except(1, 7, values...)
		for n := range uint64(1024) {
			holds := 0
			for _, a := range args {
				if n&a.Mask == a.Value {
					holds++
				}
			}
			want := 1
			if n >= 1<<7 || slices.Contains(values, n) {
				want = 0
			}
			if holds != want {
				t.Errorf("all but %v: %d comparisons hold for %d", values, holds, n)
			}
		}
	}
}

func TestFilterOfNoArchitecture(t *testing.T) {
	if _, err := (Profile{}).Filter("pdp11"); err == nil {
		t.Error("got a filter")
	}
}
