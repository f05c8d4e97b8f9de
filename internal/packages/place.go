package packages

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/requirement"
)

// PlaceProgram runs in sandboxes. Tests change it. The code in front of it finds out what the
// sandbox was made from.
var (
	//go:embed program/place.py
	PlaceProgram string
	//go:embed program/facts.py
	factsProgram string
)

const maxHave = 1 << 20 // bytes of the list of packages in a sandbox

// Process is a program with its standard input and output. Said returns the end of its output to
// stderr.
type Process struct {
	io.ReadWriteCloser
	Said func() string
}

// explain adds the program's error output to an error.
func (p Process) explain(err error) error {
	if said := p.Said(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// PlaceCommand returns the command that starts a placer, as root in a sandbox. The placer creates
// the directory if it does not exist.
func PlaceCommand(python string, l executor.Language) []string {
	return []string{python, "-I", "-S", "-c", factsProgram + PlaceProgram, Dirs[l], strconv.Itoa(int(Timeout.Seconds()))}
}

// Placer is a process in a sandbox that installs packages where code cannot change them.
type Placer struct {
	Process
	r    *bufio.Reader
	dir  string
	have []installed
	// facts are of the sandbox: its builder has to have the same.
	facts string
}

// installed is a package in a sandbox, apart from those of its image.
type installed struct{ name, version string }

// ErrNoRoom says that a sandbox has no directory for packages that code cannot change.
var ErrNoRoom = errors.New("the sandbox has no room for packages")

// NewPlacer reads what a process that was started with PlaceCommand reports about the sandbox. If
// that is an error, it closes the process.
func NewPlacer(ctx context.Context, p Process, l executor.Language) (*Placer, error) {
	t := &Placer{Process: p, dir: Dirs[l], r: bufio.NewReader(p)}
	stop := context.AfterFunc(ctx, func() { t.Close() })
	var said struct {
		Error, Facts string
		Have         [][2]string
	}
	err := t.hear(&said)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil && said.Error != "" {
		err = fmt.Errorf("%w: %.200q", ErrNoRoom, said.Error)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	t.facts = said.Facts
	for _, h := range said.Have {
		// The authors of the packages have chosen these names and versions, so they are untrusted.
		if l == executor.JavaScript {
			t.have = append(t.have, installed{h[0], h[1]})
		} else if r, perr := requirement.Parse(h[0] + "==" + h[1]); perr == nil {
			t.have = append(t.have, installed{r.Name, h[1]})
		}
	}
	return t, nil
}

// hear reads a line from the placer. The placer is not untrusted code, but such code shares its
// memory and processors.
func (t *Placer) hear(v any) error {
	line, err := readLine(t.r, maxHave)
	if err != nil {
		return t.explain(err)
	}
	return json.Unmarshal(line, v)
}

// Put sends the content of packages, in the form of a builder's output.
func (t *Placer) Put(content io.Reader) error {
	if _, err := io.Copy(t.Process, content); err != nil {
		return err
	}
	var said struct{ Error string }
	if err := t.hear(&said); err != nil {
		return err
	}
	if said.Error != "" {
		return &packageError{fmt.Sprintf("%s: %s; packages.size may be too small for all that was installed", t.dir, said.Error)}
	}
	return nil
}
