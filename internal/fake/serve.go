package fake

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// server lets other processes use a Backend.
type server struct {
	b    *Backend
	http http.Server

	mu      sync.Mutex
	holders map[string]*holder
	cancels map[string]context.CancelCauseFunc // cancel functions of runs, by ID

	abandoned map[string]bool // creations for which nobody waits
}

// Serve lets other processes use b with Dial(address). stop ends that, and removes the sandboxes
// that are left in b.
func Serve(b *Backend) (address string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "fake-")
	if err != nil {
		return "", nil, err
	}
	address = filepath.Join(dir, "socket")
	l, err := net.Listen("unix", address)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{b: b, holders: map[string]*holder{}, cancels: map[string]context.CancelCauseFunc{}, abandoned: map[string]bool{}}
	s.http.Handler = s.handler()
	var served sync.WaitGroup
	served.Go(func() { s.http.Serve(l) }) // ends by Close, with http.ErrServerClosed
	return address, func() error {
		err := s.http.Close()
		served.Wait()
		for _, box := range b.list(nil) {
			b.remove(box)
		}
		return errors.Join(err, os.RemoveAll(dir))
	}, nil
}

func (s *server) handler() http.Handler {
	m := http.NewServeMux()
	att, lst := attacher{s.b}, lister{s.b}
	m.Handle("POST /capabilities", answer(func(context.Context, struct{}) (executor.Capabilities, error) {
		return Without(s.b.caps, executor.FeaturePorts, executor.FeaturePTY), nil // a request cannot carry a connection or a later size
	}))
	m.Handle("POST /create", answer(func(ctx context.Context, c *driver.Create) (wireHolder, error) {
		h, err := s.hold(plainDriver{s.b}.Create(ctx, c))
		s.mu.Lock()
		unwanted := s.abandoned[c.ID]
		s.mu.Unlock()
		if unwanted { // the caller has given up meanwhile
			s.abandon(c.ID)
		}
		return h, err
	}))
	m.Handle("POST /abandon", answer(func(_ context.Context, id string) (struct{}, error) {
		s.abandon(id)
		return struct{}{}, nil
	}))
	m.Handle("POST /attach", answer(func(ctx context.Context, h executor.Handle) (wireHolder, error) {
		return s.hold(att.Attach(ctx, h))
	}))
	m.Handle("POST /lookup", answer(func(ctx context.Context, h executor.Handle) (wireInfo, error) {
		i, err := att.Lookup(ctx, h)
		return toWireInfo(i), err
	}))
	m.Handle("POST /last-contact", answer(att.LastContact))
	m.Handle("POST /destroy", answer(func(ctx context.Context, h executor.Handle) (struct{}, error) { return struct{}{}, att.Destroy(ctx, h) }))
	m.Handle("POST /sessions", answer(func(ctx context.Context, labels map[string]string) (infos []wireInfo, err error) {
		for i, err := range lst.Sessions(ctx, labels) {
			if err != nil {
				return infos, err
			}
			infos = append(infos, toWireInfo(i))
		}
		return infos, nil
	}))
	m.Handle("POST /holder/{holder}/refresh", onHolder(s, func(ctx context.Context, h *holder, _ struct{}) (wireInfo, error) {
		i, err := h.Refresh(ctx)
		return toWireInfo(i), err
	}))
	m.Handle("POST /holder/{holder}/reset", onHolder(s, func(ctx context.Context, h *holder, i executor.Interpreter) (struct{}, error) {
		return struct{}{}, h.Reset(ctx, i)
	}))
	m.Handle("POST /holder/{holder}/keep-alive", onHolder(s, func(ctx context.Context, h *holder, idle time.Duration) (time.Time, error) {
		return h.KeepAlive(ctx, idle)
	}))
	m.Handle("POST /holder/{holder}/destroy", onHolder(s, func(ctx context.Context, h *holder, _ struct{}) (struct{}, error) {
		return struct{}{}, h.Destroy(ctx)
	}))
	m.Handle("POST /holder/{holder}/stat", onHolder(s, func(ctx context.Context, h *holder, name string) (executor.FileInfo, error) {
		return h.Files().Stat(ctx, name)
	}))
	m.Handle("POST /holder/{holder}/mkdir", onHolder(s, func(ctx context.Context, h *holder, name string) (struct{}, error) {
		return struct{}{}, h.Files().Mkdir(ctx, name)
	}))
	m.Handle("POST /holder/{holder}/rename", onHolder(s, func(ctx context.Context, h *holder, names [2]string) (struct{}, error) {
		return struct{}{}, h.Files().Rename(ctx, names[0], names[1])
	}))
	m.Handle("POST /holder/{holder}/remove", onHolder(s, func(ctx context.Context, h *holder, name string) (struct{}, error) {
		return struct{}{}, h.Files().Remove(ctx, name)
	}))
	m.Handle("POST /holder/{holder}/list", onHolder(s, func(ctx context.Context, h *holder, name string) (infos []executor.FileInfo, err error) {
		for i, err := range h.Files().List(ctx, name) {
			if err != nil {
				return infos, err
			}
			infos = append(infos, i)
		}
		return infos, nil
	}))
	m.Handle("POST /holder/{holder}/read", onHolder(s, func(ctx context.Context, h *holder, name string) ([]byte, error) {
		r, err := h.Files().Read(ctx, name)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return io.ReadAll(r)
	}))
	m.HandleFunc("POST /holder/{holder}/write", s.write)
	m.HandleFunc("POST /holder/{holder}/run", s.run)
	m.HandleFunc("POST /holder/{holder}/install", s.install)
	m.HandleFunc("POST /cancel/{run}", s.cancel)
	return m
}

// answer returns a handler that calls f with the decoded body.
func answer[In, Out any](f func(context.Context, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := f(r.Context(), in)
		reply(w, out, err)
	})
}

func reply(w http.ResponseWriter, out any, err error) {
	result, merr := json.Marshal(out)
	json.NewEncoder(w).Encode(wireReply{Err: toWire(errors.Join(err, merr)), Result: result})
}

// onHolder returns a handler that calls f with the holder in the path.
func onHolder[In, Out any](s *server, f func(context.Context, *holder, In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := s.holder(r)
		answer(func(ctx context.Context, in In) (out Out, err error) {
			if h == nil {
				return out, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
			}
			return f(ctx, h, in)
		}).ServeHTTP(w, r)
	})
}

func (s *server) holder(r *http.Request) *holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders[r.PathValue("holder")]
}

func (s *server) hold(d driver.Session, err error) (wireHolder, error) {
	if err != nil {
		return wireHolder{}, err
	}
	h := d.(*holder)
	h.box.leave(h) // it is in contact with each request only: nobody says when its process ends
	s.mu.Lock()
	defer s.mu.Unlock()
	id := rand.Text()
	s.holders[id] = h
	return wireHolder{id, toWireInfo(h.Info())}, nil
}

// abandon removes a sandbox whose creator did not get it, now or when it is created.
func (s *server) abandon(id string) {
	s.mu.Lock()
	s.abandoned[id] = true
	s.mu.Unlock()
	if box := s.b.find(id); box != nil {
		s.b.remove(box)
	}
}

// write takes the body as the content of a file.
func (s *server) write(w http.ResponseWriter, r *http.Request) {
	h := s.holder(r)
	if h == nil {
		reply(w, nil, driver.Fail(executor.ErrNotFound, executor.RanNo, nil))
		return
	}
	q := r.URL.Query()
	mode, err := strconv.ParseUint(q.Get("mode"), 8, 32)
	if err == nil {
		err = h.Files().Write(r.Context(), q.Get("name"), r.Body, fs.FileMode(mode))
	}
	reply(w, nil, err)
}

func (s *server) run(w http.ResponseWriter, r *http.Request) {
	http.NewResponseController(w).EnableFullDuplex() // standard input arrives while output is sent
	body := bufio.NewReader(r.Body)
	line, err := body.ReadBytes('\n')
	var req wireRequest
	if err == nil {
		err = json.Unmarshal(line, &req)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if req.Stdin {
		req.Request.Stdin = body
		// A run need not read all of its input. With full duplex, the net/http server would take
		// the rest for the next request.
		w.Header().Set("Connection", "close")
	}
	s.stream(w, r, req.ID, func(ctx context.Context, h *holder, emit func(executor.Event) error) (driver.Exit, error) {
		return h.Run(ctx, &req.Request, emit)
	})
}

func (s *server) install(w http.ResponseWriter, r *http.Request) {
	var p executor.Packages
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.stream(w, r, r.URL.Query().Get("run"), func(ctx context.Context, h *holder, emit func(executor.Event) error) (driver.Exit, error) {
		return h.Install(ctx, p, emit)
	})
}

// stream answers with the events of a run. The run ends by itself or by cancel, but not because its
// holder has died: another holder may need its result.
func (s *server) stream(w http.ResponseWriter, r *http.Request, run string,
	f func(context.Context, *holder, func(executor.Event) error) (driver.Exit, error),
) {
	flush := http.NewResponseController(w)
	h := s.holder(r)
	if h == nil {
		json.NewEncoder(w).Encode(wireStep{Err: toWire(driver.Fail(executor.ErrNotFound, executor.RanNo, nil))})
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	s.mu.Lock()
	s.cancels[run] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, run)
	}()
	out := json.NewEncoder(w)
	exit, err := f(ctx, h, func(ev executor.Event) error {
		if out.Encode(wireStep{Event: &ev}) == nil {
			flush.Flush()
		}
		return nil
	})
	out.Encode(wireStep{Exit: &exit, Err: toWire(err)})
}

func (s *server) cancel(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	cancel := s.cancels[r.PathValue("run")]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCanceled)
	}
}
