package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// A hidden cell is code of the adapter that runs in a context before or after code of the user. It
// sets variables and the directory, undoes that, and shows whether the context lives. Its values
// come in a file: in source text they would stay in the history of the kernel, and E2B's own way to
// pass them does not quote.
var (
	//go:embed setup.py
	setupPython string
	//go:embed setup.js
	setupJavaScript string
)

// deskDir is a directory of the sandbox in which the adapter keeps what it has to know about
// contexts, and passes environments. Code that changes it harms only itself.
const deskDir = "/tmp/.execbroker"

// setup is the input of a hidden cell, in a file.
type setup struct {
	Keep bool               `json:"keep"` // for all runs: of the session
	Stay bool               `json:"stay"` // Dir is where the context starts, and is not left again
	Env  map[string]*string `json:"env"`
	Dir  string             `json:"dir"`
}

// answered is the output of a hidden cell. Code of the user may have forged it.
type answered struct {
	Hidden int    `json:"hidden"` // cells in this process
	PID    int    `json:"pid"`
	Born   string `json:"born"` // the process, in the words of /proc
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Error  string `json:"error"`
}

// hiddenCell returns the source text of a hidden cell. file may be empty. Languages for which there
// is none get code that does nothing.
func hiddenCell(l executor.Language, mark, file string) (code string, answers bool) {
	literal := func(s string) string {
		b, _ := json.Marshal(s) // a text; what JSON quotes is quoted alike in both languages
		return string(b)
	}
	switch l {
	case executor.Python:
		return fmt.Sprintf(`__import__("builtins").exec(%s, {"path": %s, "mark": %s})`, literal(setupPython), literal(file), literal(mark)), true
	case executor.JavaScript, executor.TypeScript:
		return fmt.Sprintf("void ((path, mark) => {\n%s})(%s, %s);", setupJavaScript, literal(file), literal(mark)), true
	case "r":
		return "invisible(0)", false
	case "bash":
		return ":", false
	}
	return "if (true) {}", false
}

// maxHidden bounds the output of a hidden cell: code that was left running may print at the same
// time.
const maxHidden = 1 << 20

// errHidden says that a hidden cell did not do its work: the user's code has changed the context.
var errHidden = errors.New("the context does not answer as it should")

// hidden runs a hidden cell in a context and returns what it says.
func (n *notebook) hidden(ctx context.Context, k *kernel, file string) (a answered, err error) {
	mark := rand.Text()
	code, answers := hiddenCell(k.which.Language, mark, file)
	x, err := n.code.execute(ctx, k.id, string(k.which.Language), code)
	if err != nil {
		return a, err
	}
	defer x.close()
	var out bytes.Buffer
	fail := codeError{}
	for {
		var h heard
		select {
		case h = <-x.events:
			x.took(h)
		case <-ctx.Done():
			return a, context.Cause(ctx)
		}
		switch {
		case h.err != nil:
			return a, h.err
		case h.kind == evStarted:
			k.begins(h.count)
			k.hidden++
		case h.kind == evStdout && out.Len()+len(h.text) <= maxHidden:
			out.Write(h.text)
		case h.kind == evError:
			fail = h.fail
		case h.kind == evEnd:
			x.drain(ctx)
			if fail.name != "" {
				return a, fmt.Errorf("%w: %s: %s", errHidden, printable(fail.name, maxTrace), printable(fail.value, maxMessage))
			}
			if !answers {
				return a, nil
			}
			_, said, found := bytes.Cut(out.Bytes(), []byte(mark))
			line, _, _ := bytes.Cut(said, []byte("\n"))
			if !found || json.Unmarshal(line, &a) != nil {
				return a, errHidden
			}
			k.answers(&a)
			return a, nil
		}
	}
}

// pass writes the file for a hidden cell.
func (n *notebook) pass(ctx context.Context, name string, s setup) (file string, err error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	file = path.Join(deskDir, name)
	return file, n.Files().Write(ctx, file, bytes.NewReader(data), 0o644)
}

// sessionFile is the name of the file with the settings of the session.
const sessionFile = "session"

// enter sets up a request in a context, and returns how to take that back. It asks for nothing if
// the request does not.
func (n *notebook) enter(ctx context.Context, k *kernel, req *executor.Request, fresh bool) (leave bool, err error) {
	if len(req.Env) == 0 && req.Dir == "" {
		return false, nil
	}
	s := setup{Env: pointers(req.Env), Dir: req.Dir, Stay: fresh && req.Context != "" && req.Dir != ""}
	file, err := n.pass(ctx, "run-"+rand.Text(), s)
	if err != nil {
		return false, err
	}
	defer func() {
		rctx, cancel := driver.StopContext(ctx)
		defer cancel()
		err = errors.Join(err, n.Files().Remove(rctx, file)) // nobody else is to find it
	}()
	a, err := n.hidden(ctx, k, file)
	switch {
	case err == nil && k.anew: // since the lease has looked
		if err = n.drop(ctx, k, false); err == nil {
			err = errNoContext
		}
	case err == nil && a.Error != "":
		err = driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("dir %s: %s", req.Dir, printable(a.Error, maxMessage)))
	}
	return true, err
}

func pointers(m map[string]string) map[string]*string {
	p := make(map[string]*string, len(m))
	for k, v := range m {
		p[k] = &v
	}
	return p
}
