package seccomp

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
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

// every are the names of all calls that the filter knows.
func every() []string {
	return append(append(Calls(), Unknown...), "clone", "personality", "socket", "socketpair")
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
	for pc := 0; pc < len(p)/8; pc++ {
		i := p[8*pc:]
		k := binary.LittleEndian.Uint32(i[4:])
		holds := false
		switch binary.LittleEndian.Uint16(i) {
		case load:
			a = binary.LittleEndian.Uint32(data[k:])
			continue
		case answer:
			return k
		case equal:
			holds = a == k
		case anyBit:
			holds = a&k != 0
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

func TestFilter(t *testing.T) {
	p, err := Filter("amd64")
	if err != nil {
		t.Fatal(err)
	}
	arch := auditArch["amd64"]
	const mount, clone, socket, personality, clone3 = 165, 56, 41, 135, 435
	for _, c := range []struct {
		name   string
		arch   uint32
		number uint32
		args   []uint64
		want   uint32
	}{
		{"read", arch, 0, nil, allow},
		{"times", arch, 100, nil, allow},
		{"mount", arch, mount, nil, refuse},
		{"unheard-of", arch, 9999, nil, refuse},
		{"x32", arch, 0x40000000, nil, refuse},
		{"other-architecture", 0x40000003, 0, nil, unknown},
		{"clone3", arch, clone3, nil, unknown},
		{"thread", arch, clone, []uint64{0x3d0f00}, allow},
		{"user-namespace", arch, clone, []uint64{0x10000000 | 17}, refuse},
		{"usual", arch, personality, []uint64{0}, allow},
		{"question", arch, personality, []uint64{LowWord}, allow},
		{"old", arch, personality, []uint64{0x20000}, refuse},
		{"unix", arch, socket, []uint64{1, 1, 0}, allow},
		{"inet6", arch, socket, []uint64{10, 1, 6}, allow},
		{"vsock", arch, socket, []uint64{40, 1, 0}, refuse},
		{"vsock-wide", arch, socket, []uint64{40 | 1<<32, 1, 0}, refuse},
		{"routes", arch, socket, []uint64{16, 3, 0}, allow},
		{"events", arch, socket, []uint64{16, 3, 15}, refuse},
		{"pair-unix", arch, 53, []uint64{1, 1, 0}, allow},
		{"pair-events", arch, 53, []uint64{16, 3, 15}, refuse},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := verdict(t, p, c.arch, c.number, c.args...); got != c.want {
				t.Errorf("got %#x, want %#x", got, c.want)
			}
		})
	}
	// Every number below 600 is answered as its name says, so no jump goes astray.
	number, known := map[string]bool{}, constants(t, "amd64")
	for _, name := range Calls() {
		number[known[name]] = true
	}
	for n := range uint32(600) {
		if got, want := verdict(t, p, arch, n) == allow, number[fmt.Sprint(n)]; got != want && n != clone && n != personality {
			t.Errorf("call %d: allowed is %v, want %v", n, got, want)
		}
	}
}

func TestFilterOfNoArchitecture(t *testing.T) {
	if _, err := Filter("pdp11"); err == nil {
		t.Error("got a filter")
	}
}
