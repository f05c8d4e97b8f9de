package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// testEngine returns the engine of the machine.
func testEngine(t testing.TB) *engine {
	t.Helper()
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	c, err := client.New(client.WithHost(host))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return newEngine(c, endpoint{host: host, from: "test"}, engineTimeout)
}

// inBox runs a Python program as the main process of a container with everything that sessions
// have, and returns what it prints.
func inBox(t *testing.T, e *engine, image string, program string) []byte {
	t.Helper()
	f, err := e.facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.refuse(&Config{}); err != nil {
		t.Fatal(err)
	}
	img, err := e.inspect(t.Context(), image, f)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.ToLower(fmt.Sprintf("%026.26s", strings.ReplaceAll(t.Name(), "/", "")))
	cfg := Config{}
	b := &box{id: id, image: img, command: []string{"python3", "-I", "-c", program}, network: "none", want: cfg.limits(&executor.Spec{}, f), seccomp: cfg.profile(), uid: f.userID(id)}
	made, err := e.ContainerCreate(t.Context(), b.options(f))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.destroy(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	a, err := e.ContainerAttach(t.Context(), made.ID, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := e.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	s := newStdio(a.Conn)
	out, err := io.ReadAll(s)
	if err != nil || s.stderr() != "" {
		t.Fatalf("got %v, stderr %s", err, s.stderr())
	}
	return out
}

// What the engine makes of the options is read where it counts: in the container.
func TestHardening(t *testing.T) {
	t.Parallel()
	e := testEngine(t)
	program, err := os.ReadFile("testdata/inside.py")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Status     map[string]string
		Mounts     map[string]string
		Limits     map[string][2]int
		Interfaces []string
		Written    []string // directories that took a file
		Env        map[string]string
		Hostname   string
		Pid, Oom   int
		CPU        float64
		Memory     int64
		Pids       int64
	}
	if err := json.Unmarshal(inBox(t, e, dockertest.Trixie, string(program)), &in); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		"CapEff": "00000000000000e0", "CapPrm": "00000000000000e0", "CapBnd": "00000000000000e0", "CapAmb": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2", "Uid": "0 0 0 0",
	} {
		if got := in.Status[k]; got != want {
			t.Errorf("status: got %s %q, want %q", k, got, want)
		}
	}
	for dir, want := range map[string]string{
		"/": "ro", executor.Workdir: "rw nosuid nodev size=262144k nr_inodes=65536 mode=755", tempDir: "rw nosuid nodev size=65536k nr_inodes=16384",
		shmDir: "rw nosuid nodev noexec size=16384k nr_inodes=4096", "/proc/sys": "ro", "/sys": "ro",
	} {
		got := strings.FieldsFunc(in.Mounts[dir], func(r rune) bool { return r == ',' })
		for _, w := range strings.Fields(want) {
			if !slices.Contains(got, w) {
				t.Errorf("mount of %s: got %q, want %s in it", dir, got, w)
			}
		}
		if slices.Contains(got, "noexec") && dir == executor.Workdir {
			t.Errorf("mount of %s: got %q", dir, got)
		}
	}
	// By root, which is the supervisor: the work directory belongs to the code, and /dev, of 64
	// KiB, does not.
	if want := []string{"/dev", shmDir, namesDir, tempDir}; !slices.Equal(in.Written, want) {
		t.Errorf("could write to %q, want %q", in.Written, want)
	}
	for k, want := range map[string][2]int{"core": {0, 0}, "nofile": {descriptors, descriptors}, "memlock": {locked, locked}, "msgqueue": {0, 0}} {
		if in.Limits[k] != want {
			t.Errorf("limit %s: got %v, want %v", k, in.Limits[k], want)
		}
	}
	if want := []string{"lo"}; !slices.Equal(in.Interfaces, want) {
		t.Errorf("got interfaces %q, want %q", in.Interfaces, want)
	}
	if in.Pid != 1 || in.Hostname != "sandbox" || in.Oom != 500 {
		t.Errorf("got pid %d, host name %q, oom score %d", in.Pid, in.Hostname, in.Oom)
	}
	if want := int64(512+256+64+16+48) << 20; in.Memory != want || in.Pids != 144 || in.CPU != 1 {
		t.Errorf("got memory %d, pids %d, cpu %v, want %d, 144, 1", in.Memory, in.Pids, in.CPU, want)
	}
	for _, k := range slices.Sorted(maps.Keys(in.Env)) {
		if k != "PATH" && k != "HOSTNAME" && k != "HOME" && k != "LC_CTYPE" {
			t.Errorf("got environment variable %s", k)
		}
	}
}
