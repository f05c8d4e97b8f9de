package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/execbroker/execbroker/executor"
)

// A script is a program of testdata/scripts.txt.
type script struct {
	name, ext, stdin, code, differs string
	input                           bool
}

func scripts(t *testing.T) (all []script) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/scripts.txt")
	if err != nil {
		t.Fatal(err)
	}
	head := regexp.MustCompile(`^(\S+)(?: (\.\w+))?(?: <(.+))?$`)
	for _, f := range archive.Files {
		m := head.FindStringSubmatch(f.Name)
		if m == nil {
			t.Fatalf("not the name of a script: %q", f.Name)
		}
		s := script{name: m[1], ext: m[2], input: m[3] != "", stdin: strings.ReplaceAll(m[3], `\n`, "\n")}
		if s.ext == "" {
			s.ext = ".js"
		}
		if s.stdin == "*" {
			s.stdin = strings.Repeat("0123456789", 100_000)
		}
		s.code, s.differs, _ = strings.Cut(string(f.Data), "\ndiffers: ")
		all = append(all, s)
	}
	return all
}

// ended is how a program ended, in plain Node or in a cell.
type ended struct {
	stdout, stderr string
	code           int
	failed         bool // by an error that nothing has caught, which stderr has
}

func TestScripts(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		for _, p := range scripts(t) {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				want, got := plainly(t, root, p), inCell(t, s, p)
				same := got.stdout == want.stdout && got.code == want.code && got.failed == want.failed
				if want.failed { // with the lines of the source, and frames of Node
					for _, word := range strings.SplitN(got.stderr, ": ", 2) {
						same = same && strings.Contains(want.stderr, word)
					}
				} else {
					same = same && got.stderr == want.stderr
				}
				switch {
				case !same && p.differs == "":
					t.Errorf("in a cell:\n%+v\nin plain Node:\n%+v", got, want)
				case same && p.differs != "" && !strings.Contains(p.differs, " may "):
					t.Errorf("does not differ any more: %+v", got)
				}
			})
		}
	})
}

// plainly runs a program by node.
func plainly(t *testing.T, root string, p script) ended {
	dir := t.TempDir()
	file := filepath.Join(dir, "cell"+p.ext)
	if err := os.WriteFile(file, []byte(p.code), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	argv := inRoot(root, "sh", "-c", `cd "$0" && exec env -i PATH="$PATH" TZ=UTC LANG=C.UTF-8 "$(command -v node || command -v nodejs)" "$1"`, dir, file)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(p.stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	e := ended{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
	e.failed = e.code == 1 && strings.Contains(e.stderr, "\nNode.js v")
	return e
}

// inCell runs it in an interpreter of its own.
func inCell(t *testing.T, s *sandbox, p script) ended {
	req := executor.Request{Language: executor.JavaScript, Context: "x-" + p.name, Code: p.code}
	if p.input {
		req.Stdin = strings.NewReader(p.stdin)
	}
	r := s.do(t.Context(), req)
	if err := s.Reset(t.Context(), executor.Interpreter{Language: req.Language, Context: req.Context}); err != nil {
		t.Fatal(err)
	}
	if r.err != nil || r.Reason != "" {
		t.Fatalf("got %+v, %v", r, r.err)
	}
	e := ended{stdout: r.stdout, stderr: r.stderr, code: r.Code}
	if x := r.Exception; x != nil {
		if e.failed = true; e.stderr != "" {
			t.Errorf("wrote %q to stderr beside its error", e.stderr)
		}
		e.stderr = x.Message
		if x.Type != "string" && x.Type != "object" && x.Type != "Object" {
			e.stderr = fmt.Sprintf("%s: %s", x.Type, x.Message)
		}
	}
	return e
}
