package cell

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// step is a cell for testdata/host.py.
type step struct {
	Source string            `json:"source"`
	Stdin  string            `json:"stdin,omitempty"`
	Dir    string            `json:"dir,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Cancel bool              `json:"cancel,omitempty"`
}

// outcome is what the host received from a cell. Events are [stream, text] and ["main" or
// "display", bundle].
type outcome struct {
	Events      [][]any `json:"events"`
	Exit        int     `json:"exit"`
	Interrupted bool    `json:"interrupted"`
	Exception   *struct {
		Type, Message, Traceback string
		Line                     int
	} `json:"exception"`
}

// text returns the output to a stream.
func (o outcome) text(stream string) string {
	var b strings.Builder
	for _, e := range o.Events {
		if e[0] == stream {
			b.WriteString(e[1].(string))
		}
	}
	return b.String()
}

// bundles returns the values of one kind.
func (o outcome) bundles(kind string) (all []map[string]any) {
	for _, e := range o.Events {
		if e[0] == kind {
			all = append(all, e[1].(map[string]any))
		}
	}
	return all
}

// pythons returns the interpreters to test: python3, or those in EXECBROKER_PYTHONS, separated by
// colons.
func pythons(t *testing.T) []string {
	t.Helper()
	list := filepath.SplitList(os.Getenv("EXECBROKER_PYTHONS"))
	if len(list) == 0 {
		list = []string{"python3"}
	}
	for i, p := range list {
		path, err := exec.LookPath(p)
		if err != nil {
			t.Fatalf("%v: these tests need Python 3.9 or later", err)
		}
		list[i] = path
	}
	return list
}

// sourceFile returns the name of a file with Source.
func sourceFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "cell.py")
	if err := os.WriteFile(name, []byte(Source), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// runCells runs cells in one interpreter.
func runCells(t *testing.T, python string, steps ...step) []outcome {
	t.Helper()
	return runGroups(t, python, steps)[0]
}

// runGroups runs each list of cells in a new interpreter.
func runGroups(t *testing.T, python string, groups ...[]step) [][]outcome {
	t.Helper()
	in, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	// A cell that hangs fails only its own case.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-I", "testdata/host.py", sourceFile(t), t.TempDir())
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", python, err, stderr.Bytes())
	}
	var flat []outcome
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var o outcome
		if err := d.Decode(&o); err != nil {
			t.Fatal(err)
		}
		flat = append(flat, o)
	}
	var all [][]outcome
	for _, steps := range groups {
		if len(flat) < len(steps) {
			t.Fatalf("%s: got %d outcomes of %d cells\n%s", python, len(flat), len(steps), stderr.Bytes())
		}
		all, flat = append(all, flat[:len(steps)]), flat[len(steps):]
	}
	return all
}

func TestCells(t *testing.T) {
	for _, python := range pythons(t) {
		for _, c := range cases {
			t.Run(filepath.Base(filepath.Dir(filepath.Dir(python)))+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				all := runCells(t, python, c.steps...)
				c.check(t, all[len(all)-1])
			})
		}
	}
}
