package parity

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// line is a program in a line of JSON. Other keys are errors, except in the form of HumanEval.
type line struct {
	ID       string            `json:"id"`
	Language executor.Language `json:"language"`
	Module   bool              `json:"module"`
	Doc      string            `json:"doc"`
	cell
	Cells   []cell            `json:"cells"`
	Files   map[string]string `json:"files"`
	Differs map[string]string `json:"differs"`
}

type cell struct {
	Code     *string `json:"code"`
	Stdin    string  `json:"stdin"`
	Stdout   *string `json:"stdout"`
	ExitCode *int    `json:"exit_code"`
}

// problem is a program in the form of HumanEval: the beginning of a function, its body, and a
// function "check" that takes it.
type problem struct {
	TaskID   string `json:"task_id"`
	Prompt   string `json:"prompt"`
	Solution string `json:"canonical_solution"`
	Test     string `json:"test"`
	Entry    string `json:"entry_point"`
}

// ReadLines reads programs, a JSON object in each line. A line has "id", "language", and either
// "code" with "stdin", or "cells" that each have these. "stdout" and "exit_code" beside "code" are
// what is expected. "files" are texts by name, "differs" reasons by type of backend, "module" says
// that JavaScript is a module, "doc" describes. A line with "prompt", "canonical_solution", "test"
// and "entry_point" is a program of Python in the form of HumanEval, which is to end without an
// exception. Errors name their line; all are reported at once.
func ReadLines(r io.Reader) ([]Program, error) {
	var programs []Program
	var errs []error
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	n := 1
	for ; s.Scan(); n++ {
		text := bytes.TrimSpace(s.Bytes())
		if len(text) == 0 {
			continue
		}
		p, err := parseLine(text)
		if err == nil {
			err = p.check()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", n, err))
			continue
		}
		if programs = append(programs, p); len(programs) > MaxPrograms {
			return nil, fmt.Errorf("line %d: more than %d programs", n, MaxPrograms)
		}
	}
	switch err := s.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		errs = append(errs, fmt.Errorf("line %d: more than %d bytes", n, maxLine))
	case err != nil:
		errs = append(errs, fmt.Errorf("line %d: %w", n, err))
	case len(programs) == 0 && len(errs) == 0:
		errs = append(errs, errors.New("no programs: there is no line with a JSON object"))
	}
	return programs, fewer(append(errs, unique(programs)))
}

func parseLine(text []byte) (p Program, err error) {
	if !utf8.Valid(text) {
		return p, errors.New("not UTF-8")
	}
	var q problem
	if err := json.Unmarshal(text, &q); err != nil {
		return p, err
	}
	if q.Prompt != "" && q.Test != "" && q.Entry != "" {
		return q.program(), nil
	}
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return p, err
	}
	known := false
	for _, have := range languages {
		known = known || have.language == l.Language
	}
	cells := l.Cells
	switch {
	case l.ID == "":
		return p, errors.New(`no "id"`)
	case !known:
		return p, fmt.Errorf("language %q: want %q, %q or %q", l.Language, executor.Python, executor.JavaScript, executor.TypeScript)
	case (l.Code == nil) == (l.Cells == nil):
		return p, errors.New(`want "code" or "cells"`)
	case l.Code != nil:
		cells = []cell{l.cell}
	case l.Stdin != "" || l.Stdout != nil || l.ExitCode != nil:
		return p, errors.New(`"stdin", "stdout" and "exit_code" belong into the "cells"`)
	}
	p = Program{Name: l.ID, Language: l.Language, Module: l.Module, Doc: l.Doc, Files: l.Files, Differs: l.Differs}
	for i, c := range cells {
		if c.Code == nil {
			return p, fmt.Errorf("cell %d: no \"code\"", i+1)
		}
		p.Cells = append(p.Cells, Cell{Code: *c.Code, Stdin: c.Stdin, Stdout: c.Stdout, ExitCode: c.ExitCode})
	}
	if len(p.Cells) == 0 {
		return p, errors.New(`"cells" is empty`)
	}
	return p, nil
}

func (q problem) program() Program {
	code, exit := q.Prompt+q.Solution+"\n"+q.Test+"\ncheck("+q.Entry+")\n", 0
	name := q.TaskID
	name = cmp.Or(name, q.Entry)
	return Program{Name: name, Language: executor.Python, Cells: []Cell{{Code: code, ExitCode: &exit}}}
}
