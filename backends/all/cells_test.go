package all_test

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// TestCellsOfJavaScript runs the cells of testdata/cells.txt in the two hosts of internal/cell's
// source for JavaScript: the realm of Pyodide, and Node with the runner, in bubblewrap. What a cell
// means is the same in both.
func TestCellsOfJavaScript(t *testing.T) {
	t.Parallel()
	types := []string{"pyodide"}
	if _, err := exec.LookPath("bwrap"); err == nil {
		types = append(types, "bubblewrap")
	}
	archive, err := txtar.ParseFile("testdata/cells.txt")
	if err != nil {
		t.Fatal(err)
	}
	file := "backends:\n  pyodide: {type: pyodide}\n  bubblewrap: {type: bubblewrap, languages: [javascript]}\nroutes:\n  - {name: all, split: [{backend: pyodide, weight: 1}]}\n"
	cfg, err := backends.Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	b, err := backends.Open(t.Context(), driver.Env{Owner: "cells"}, all.Registry(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, typ := range types {
		x, _ := b.Backend(typ)
		s, err := x.Create(t.Context(), executor.Spec{Languages: []executor.Language{executor.JavaScript}})
		if typ == "pyodide" && errors.Is(err, executor.ErrUnsupported) {
			t.Skip(err) // not on this system
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range archive.Files {
			t.Run(typ+"/"+c.Name, func(t *testing.T) {
				code, want, _ := strings.Cut(string(c.Data), "=>\n")
				cells := strings.Split(code, "# %%\n")
				var r *executor.Result
				for _, part := range cells {
					if r, err = s.Run(t.Context(), executor.Request{Language: executor.JavaScript, Code: part}, nil); err != nil {
						t.Fatal(err)
					}
				}
				if got := sketch(r, r.Cell-len(cells)); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

var (
	// positions have columns that are the hosts' own: Pyodide evaluates another text than the cell.
	positions = regexp.MustCompile(`<cell (\d+)>:(\d+)(:\d+)?`)
	// reasons of a syntax error are in the words of the parser.
	reasons = regexp.MustCompile(`SyntaxError: .*`)
)

// sketch writes down what a cell has shown, and how it ended. There were others before.
func sketch(r *executor.Result, before int) string {
	var text strings.Builder
	if len(r.Stdout) > 0 {
		fmt.Fprintf(&text, "stdout %s\n", short(string(r.Stdout)))
	}
	for _, o := range r.Outputs {
		for _, kind := range slices.Sorted(maps.Keys(o.Data)) {
			fmt.Fprintf(&text, "%s%s %s\n", map[bool]string{true: "main "}[o.Main], kind, short(string(o.Data[kind])))
		}
	}
	if e := r.Exception; e != nil {
		message := e.Message
		if e.Type == "SyntaxError" {
			message = "..."
		}
		trace := positions.ReplaceAllStringFunc(reasons.ReplaceAllString(e.Traceback, "SyntaxError: ..."), func(at string) string {
			m := positions.FindStringSubmatch(at)
			cell, _ := strconv.Atoi(m[1])
			return fmt.Sprintf("<cell %d>:%s", cell-before, m[2])
		})
		fmt.Fprintf(&text, "line %d, %s: %s\n", e.Line, short(e.Type), short(message))
		if len(trace) > 1000 {
			trace = short(trace) + "\n"
		}
		text.WriteString(trace)
	}
	if r.ExitCode != 0 && r.Exception == nil || r.StateLost {
		fmt.Fprintf(&text, "exit code %d, %s\n", r.ExitCode, r.Reason)
	}
	return text.String()
}

func short(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%s... %d bytes", strconv.Quote(s[:20]), len(s))
	}
	return strconv.Quote(s)
}
