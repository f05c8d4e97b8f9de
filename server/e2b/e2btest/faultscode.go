package e2btest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// serveInterpreter serves a request for the code interpreter of a sandbox.
func (f *faulty) serveInterpreter(w http.ResponseWriter, r *http.Request, now Faults) {
	switch {
	case r.URL.Path == "/execute":
		if now.BlankLines {
			w = blankLines{w}
		}
		if now.UnseenDisconnects {
			f.unseen(w, r)
			return
		}
	case r.Method == http.MethodDelete || strings.HasSuffix(r.URL.Path, "/restart"):
		linger(r, now.SlowDeletes)
	case r.Method == http.MethodPost && r.URL.Path == "/contexts":
		linger(r, now.SlowContexts)
	}
	f.server.ServeHTTP(w, r)
}

// linger waits for d, unless the client goes away.
func linger(r *http.Request, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
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

// faultyExecutor has sessions with faults.
type faultyExecutor struct {
	executor.Executor
	f *faulty
}

// Create implements executor.Executor.
func (x faultyExecutor) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &faultySession{Session: s, f: x.f, all: map[executor.Interpreter]*execution{}}, nil
}

// faultySession is a session whose code behaves as in E2B's kernels.
type faultySession struct {
	executor.Session
	f *faulty

	mu  sync.Mutex
	all map[executor.Interpreter]*execution
}

// execution is what is known of the executions of an interpreter.
type execution struct {
	abandoned time.Time // when code was last stopped because its client had gone
	before    int       // executions that are counted before those of the interpreter
	last      int       // the number of the last execution
	astray    bool      // it does not begin in its directory
}

// As implements executor.As.
func (s *faultySession) As(target any) bool { return executor.As(s.Session, target) }

// of calls do with what is known of an interpreter.
func (s *faultySession) of(which executor.Interpreter, do func(*execution)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[which] == nil {
		s.all[which] = &execution{}
	}
	do(s.all[which])
}

// Run implements executor.Session.
func (s *faultySession) Run(ctx context.Context, req executor.Request, emit func(executor.Event) error) (*executor.Result, error) {
	if len(req.Command) > 0 {
		return s.Session.Run(ctx, req, emit)
	}
	now, python := s.f.faults(), req.Language == executor.Python
	which := executor.Interpreter{Language: req.Language, Context: req.Context}
	stuck := false
	s.of(which, func(x *execution) {
		stuck = time.Since(x.abandoned) < now.StuckAfterAbandon
		if x.astray {
			req.Dir = ""
		}
	})
	if stuck {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if now.PastedEnvironment && python {
		req.Code, req.Env = pasted(req.Env)+req.Code, nil
	}
	nodes := now.SilentExecution && !python // counts as E2B's kernel does, which names no cells
	var late *executor.Event
	result, err := s.Session.Run(ctx, req, func(e executor.Event) error {
		if e.Kind == executor.EventStarted {
			s.of(which, func(x *execution) {
				if nodes && x.last == 0 {
					x.before = 1
				}
				x.last = x.before + e.Cell
				e.Cell = x.last
			})
			if now.LateNumbers {
				late = &e
				return nil
			}
		}
		return emit(e)
	})
	if nodes && result != nil && result.Exception != nil {
		result.Exception.Traceback = cellNames.ReplaceAllString(result.Exception.Traceback, "evalmachine.<anonymous>")
	}
	if ctx.Err() != nil {
		if now.ReplacedProcesses && !python {
			s.of(which, func(x *execution) { x.before = x.last })
			err = errors.Join(err, s.Session.Reset(context.WithoutCancel(ctx), which))
		}
		s.of(which, func(x *execution) { x.abandoned = time.Now() })
		return result, err
	}
	if now.EndlessExit && !python && result != nil && result.StateLost {
		<-ctx.Done()
		return result, context.Cause(ctx)
	}
	if late != nil && err == nil {
		err = emit(*late)
	}
	return result, err
}

// cellNames are what tracebacks of JavaScript call cells.
var cellNames = regexp.MustCompile(`<cell \d+>`)

// Reset implements executor.Session.
func (s *faultySession) Reset(ctx context.Context, which executor.Interpreter) error {
	lost := s.f.faults().LostDirectory
	s.of(which, func(x *execution) { *x = execution{abandoned: x.abandoned, astray: x.astray || lost} })
	return s.Session.Reset(ctx, which)
}

// Files implements executor.Session.
func (s *faultySession) Files() executor.Files { return tornFiles{s.Session.Files(), s.f} }

// pasted is an environment as source text, wrong as soon as a value has a quote in it.
func pasted(env map[string]string) string {
	var code strings.Builder
	for _, k := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&code, "import os; os.environ['%s'] = '%s'\n", k, env[k])
	}
	return code.String()
}

// tornFiles writes a file as one that is open while its content arrives.
type tornFiles struct {
	executor.Files
	f *faulty
}

// Write implements executor.Files.
func (t tornFiles) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	if !t.f.faults().TornUploads {
		return t.Files.Write(ctx, name, r, mode)
	}
	ctx = context.WithoutCancel(ctx) // the file stays when its client goes
	if err := t.Files.Write(ctx, name, bytes.NewReader(nil), mode); err != nil {
		return err
	}
	var broken error
	return errors.Join(t.Files.Write(ctx, name, endingReader{r, &broken}, mode), broken)
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
