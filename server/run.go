package server

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/stdin"
)

// RunRequest is one execution. Exactly one of Code and Command is set. To run empty code, set
// Language.
type RunRequest struct {
	ID             string                    `json:"id,omitempty"` // ID of the run; can be used once in a session, so that a repeated request does not run twice
	Language       executor.Language         `json:"language,omitempty"`
	Context        string                    `json:"context,omitempty"`
	Code           string                    `json:"code,omitempty"`
	Command        []string                  `json:"command,omitempty"`
	Stdin          *string                   `json:"stdin,omitempty"`
	Input          bool                      `json:"input,omitempty"`    // more input is sent while the run is in progress; only in a session and with an ID
	Terminal       *executor.TerminalSize    `json:"terminal,omitempty"` // gives a command a terminal of this size: executor.Request.Terminal
	Env            map[string]string         `json:"env,omitempty"`
	Dir            string                    `json:"dir,omitempty"`
	TimeoutSeconds float64                   `json:"timeout_seconds,omitempty"` // zero: 30, or less if the limit is lower
	LingerSeconds  *float64                  `json:"linger_seconds,omitempty"`  // executor.Request.Linger
	Artifacts      *executor.ArtifactRequest `json:"artifacts,omitempty"`
}

// OnceRequest is an execution in a new sandbox.
type OnceRequest struct {
	RunRequest
	Template string       `json:"template,omitempty"`
	Packages []string     `json:"packages,omitempty"`
	Files    []FileOfARun `json:"files,omitempty"` // written before the code runs
}

// FileOfARun is a file in a request.
type FileOfARun struct {
	Name    string         `json:"name"`    // relative to executor.Workdir
	Content executor.Bytes `json:"content"` // text, or {"base64": "..."}
}

// request converts a client's request to one of the contract.
func (s *Server) request(q RunRequest) (executor.Request, error) {
	timeout, err := seconds("timeout_seconds", q.TimeoutSeconds, s.cfg.MaxTimeout)
	if err != nil {
		return executor.Request{}, err
	}
	r := executor.Request{
		ID: q.ID, Language: q.Language, Context: q.Context, Code: q.Code, Command: q.Command, Env: q.Env, Dir: q.Dir, Keep: maxOutputInResultBytes,
		Limits: executor.RunLimits{WallTime: cmp.Or(timeout, DefaultRun(s.cfg.Spec, s.cfg.MaxTimeout))},
	}
	if q.LingerSeconds != nil {
		linger, err := seconds("linger_seconds", *q.LingerSeconds, s.cfg.MaxTimeout)
		if err != nil {
			return executor.Request{}, err
		}
		r.Linger = &linger
	}
	switch {
	case q.Input && (q.ID == "" || q.Stdin != nil):
		return executor.Request{}, refuse(http.StatusBadRequest, "invalid", "input: set the id of the run, and no stdin")
	case q.Input:
		r.Stdin = stdin.New()
	case q.Stdin != nil:
		r.Stdin = strings.NewReader(*q.Stdin)
	}
	if q.Terminal != nil {
		r.Terminal = new(executor.Terminal)
		if err := r.Terminal.Resize(*q.Terminal); err != nil {
			return executor.Request{}, err
		}
	}
	if a := q.Artifacts; a != nil {
		r.Artifacts = a
		r.Artifacts.MaxBytes = min(cmp.Or(a.MaxBytes, DefaultArtifactsBytes), s.cfg.MaxFile)
	}
	return r, nil
}

// result counts and answers a run. If there is an error, there is no result; the error says whether
// the code ran.
func (s *Server) result(c Client, x executor.Session, res *executor.Result, err error) (int, any, error) {
	s.mu.Lock()
	u := s.usageOf(c)
	if res != nil {
		u.done[res.Status]++
	} else {
		u.failed++
	}
	s.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	v := resultOf(res)
	if b, ok := x.(*session); ok && b.lease != nil {
		v.Conversation = turn(b.lease)
	}
	return http.StatusOK, v, nil
}

// once calls run with a new sandbox and destroys it afterwards.
func (s *Server) once(w http.ResponseWriter, r *http.Request, c Client, run func(executor.Session, executor.Request) (int, any, error)) (int, any, error) {
	var q OnceRequest
	if err := s.body(w, r, &q); err != nil {
		return 0, nil, err
	}
	if q.Input {
		return 0, nil, refuse(http.StatusBadRequest, "invalid", "input: only for runs in a session")
	}
	req, err := s.request(q.RunRequest)
	if err != nil {
		return 0, nil, err
	}
	sq := SessionRequest{Template: q.Template, Packages: q.Packages, IdleSeconds: min(s.cfg.MaxIdle, s.cfg.MaxTimeout+time.Minute).Seconds()}
	if q.Language != "" {
		sq.Languages = []executor.Language{q.Language}
	}
	spec, err := s.spec(c, sq)
	if err != nil {
		return 0, nil, err
	}
	end, err := s.begin(c)
	if err != nil {
		return 0, nil, err
	}
	defer end()
	x, err := s.x.Create(r.Context(), spec)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		if err := x.Close(); err != nil { // the idle TTL removes the sandbox
			s.cfg.Log.WarnContext(r.Context(), "closing the sandbox of a run", "id", requestID(r), "err", err)
		}
	}()
	for _, f := range q.Files {
		if err := x.Files().Write(r.Context(), f.Name, strings.NewReader(string(f.Content)), 0); err != nil {
			return 0, nil, err
		}
	}
	return run(x, req)
}

func (s *Server) runOnce(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	return s.once(w, r, c, func(x executor.Session, req executor.Request) (int, any, error) {
		res, err := x.Run(r.Context(), req, nil)
		return s.result(c, x, res, err)
	})
}

func (s *Server) streamOnce(w http.ResponseWriter, r *http.Request, c Client) (int, any, error) {
	return s.once(w, r, c, func(x executor.Session, req executor.Request) (int, any, error) {
		return 0, nil, s.stream(w, r, c, x, req)
	})
}

// execution runs a request in a session and answers it.
type execution func(http.ResponseWriter, *http.Request, Client, *session, executor.Request) (int, any, error)

// within makes an operation on a session of an execution.
func (s *Server) within(run execution) func(http.ResponseWriter, *http.Request, Client, *session) (int, any, error) {
	return func(w http.ResponseWriter, r *http.Request, c Client, b *session) (_ int, _ any, err error) {
		var q RunRequest
		if err := s.body(w, r, &q); err != nil {
			return 0, nil, err
		}
		req, err := s.request(q)
		if err != nil {
			return 0, nil, err
		}
		end, err := s.begin(c)
		if err != nil {
			return 0, nil, err
		}
		defer end()
		over, err := s.name(b, q.ID, req)
		if err != nil {
			return 0, nil, err
		}
		defer func() { over(err) }()
		return run(w, r, c, b, req)
	}
}

func (s *Server) run(_ http.ResponseWriter, r *http.Request, c Client, b *session, req executor.Request) (int, any, error) {
	res, err := b.Run(r.Context(), req, nil)
	return s.result(c, b, res, s.gone(b, err))
}

func (s *Server) streamed(w http.ResponseWriter, r *http.Request, c Client, b *session, req executor.Request) (int, any, error) {
	return 0, nil, s.gone(b, s.stream(w, r, c, b, req))
}

// maxNamed is the largest number of run IDs that a session remembers.
const maxNamed = 10_000

// name refuses a run whose ID was used before: its client did not get the answer, and the code must
// not run twice. Clients can use the ID to send to the run until over is called with the outcome of
// it. The ID of a run that did not begin can be used again.
func (s *Server) name(b *session, id string, req executor.Request) (over func(error), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := b.runs[id]
	switch {
	case id == "":
		return func(error) {}, nil
	case known && before != nil:
		return nil, repeated(executor.RanMaybe)
	case known:
		return nil, repeated(executor.RanYes)
	case len(b.runs) >= maxNamed:
		return nil, refuse(http.StatusTooManyRequests, "exhausted", "the session has had %d runs with an id; make a new one, or give no ids", maxNamed)
	case b.runs == nil:
		b.runs = map[string]*typing{}
	}
	t := &typing{terminal: req.Terminal}
	t.input, _ = req.Stdin.(*stdin.Input)
	b.runs[id] = t
	return func(err error) {
		if t.input != nil {
			t.input.Close()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		b.runs[id] = nil
		if didNotRun(err) {
			delete(b.runs, id)
		}
	}, nil
}

// didNotRun reports whether the error of a run says that no code began.
func didNotRun(err error) bool {
	return err != nil && ProblemOf(err).Ran == executor.RanNo.String()
}

// repeated refuses an ID that was used by a run of which ran says whether it began.
func repeated(ran executor.Ran) *Problem {
	message := "the id was used by an earlier run; the code was not run again"
	if ran == executor.RanMaybe {
		message = "the id was used by an earlier request, and it is not known whether its run began; the code was not run again"
	}
	return &Problem{Status: http.StatusConflict, Kind: "repeated", Ran: ran.String(), Message: message}
}
