package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// fatalPing reports whether a request ends envd, which it then has, with all commands.
func (b *sandbox) fatalPing(r *http.Request) bool {
	interval := r.Header.Get("Keepalive-Ping-Interval")
	if n, err := strconv.Atoi(interval); err != nil || n > 0 || !b.faults().FatalPings {
		return false
	}
	b.processes.end()
	return true
}

// end kills all processes.
func (s *processService) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		p.stop(killed)
	}
}

// tear writes a file as one that is open while its content arrives.
func (b *sandbox) tear(ctx context.Context, abs string, data io.Reader) error {
	ctx = context.WithoutCancel(ctx) // the file stays when its client goes
	files := b.session.Files()
	if err := files.Write(ctx, abs, bytes.NewReader(nil), 0); err != nil {
		return err
	}
	var broken error
	return errors.Join(files.Write(ctx, abs, endingReader{data, &broken}, 0), broken)
}

// endingReader ends where reading fails, and says so elsewhere.
type endingReader struct {
	io.Reader
	failed *error
}

func (e endingReader) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil && err != io.EOF {
		*e.failed, err = err, io.EOF
	}
	return n, err
}

// pasted is an environment as source text, wrong as soon as a value has a quote in it.
func pasted(env map[string]string) string {
	var code strings.Builder
	for _, k := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&code, "import os; os.environ['%s'] = '%s'\n", k, env[k])
	}
	return code.String()
}

// blankLines adds an empty line to each piece of a stream.
type blankLines struct{ http.ResponseWriter }

func (l blankLines) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l blankLines) Write(p []byte) (int, error) {
	if _, err := l.ResponseWriter.Write([]byte("\n")); err != nil {
		return 0, err
	}
	return l.ResponseWriter.Write(p)
}

// abandon remembers that code was stopped now because its client has gone.
func (x *codeContext) abandon() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.abandoned = time.Now()
}

// number returns what an execution is counted as that is so many in its interpreter.
func (x *codeContext) number(cell int, f Faults) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.SilentExecution && x.Language != executor.Python && x.last == 0 {
		x.before = 1
	}
	x.last = x.before + cell
	return x.last
}

// replace replaces the process of code that was stopped now because its client has gone, if that is what happens.
func (b *sandbox) replace(ctx context.Context, x *codeContext) {
	if ctx.Err() == nil || x.Language == executor.Python || !b.faults().ReplacedProcesses {
		return
	}
	x.mu.Lock()
	x.before = x.last
	x.mu.Unlock()
	_ = b.seen(b.session.Reset(b.life, executor.Interpreter{Language: x.Language, Context: x.name})) // or the sandbox is gone
}

// slowly waits before a context is ended.
func (b *sandbox) slowly(ctx context.Context) {
	t := time.NewTimer(b.faults().SlowDeletes)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// stuck reports whether a run that begins now is one of those that never do.
func (x *codeContext) stuck(window time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return window > 0 && time.Since(x.abandoned) < window
}
