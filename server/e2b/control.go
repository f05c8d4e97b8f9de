package e2b

import (
	"net/http"
	"time"
)

// connect returns a sandbox and extends its life. One that is paused is resumed.
func (s *Server) connect(r *http.Request, b *sandbox, v2 bool) (int, any, error) {
	var ask struct {
		Timeout   *int64 `json:"timeout"`
		Memory    *bool  `json:"memory"`
		AutoPause bool   `json:"autoPause"`
	}
	err := readJSON(r, &ask, v2)
	if err != nil {
		return 0, nil, err
	}
	d := min(300*time.Second, s.cfg.MaxTimeout)
	switch {
	case ask.Timeout != nil:
		if d, err = s.seconds(*ask.Timeout); err != nil {
			return 0, nil, err
		}
	case !v2:
		return 0, nil, refuse(http.StatusBadRequest, "timeout: is required")
	}
	if ask.AutoPause {
		then, err := s.then(true)
		if err != nil {
			return 0, nil, err
		}
		b.setThen(then)
	}
	switch resumed, err := b.resume(r.Context(), d); {
	case err != nil:
		return 0, nil, err
	case resumed:
		return http.StatusCreated, s.answer(b), nil
	}
	if err := b.setEnd(r.Context(), d, true); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, s.answer(b), nil
}

func (s *Server) get(_ *http.Request, b *sandbox) (int, any, error) {
	d := s.detail(b)
	d.EnvdAccessToken, d.Domain = b.token, s.domain()
	d.describe(b.egress)
	b.mu.Lock()
	d.Lifecycle = &lifecycle{AutoResume: b.resumes > 0, OnTimeout: b.onTimeout}
	b.mu.Unlock()
	return http.StatusOK, d, nil
}

// metrics returns nothing: backends measure nothing continuously.
func (*Server) metrics(*http.Request, *sandbox) (int, any, error) {
	return http.StatusOK, []any{}, nil
}

// kill ends a sandbox for its client and answers when it is gone.
func (*Server) kill(r *http.Request, b *sandbox) (int, any, error) {
	b.stop(errKilled)
	select {
	case <-b.gone:
		return http.StatusNoContent, nil, b.closeErr
	case <-r.Context().Done():
		return 0, nil, r.Context().Err()
	}
}

func (s *Server) setTimeout(r *http.Request, b *sandbox) (int, any, error) {
	var ask struct {
		Timeout int64 `json:"timeout"`
	}
	return s.move(r, b, &ask, func() error {
		d, err := s.seconds(ask.Timeout)
		if err != nil {
			return err
		}
		return b.setEnd(r.Context(), d, false)
	})
}

func (s *Server) refresh(r *http.Request, b *sandbox) (int, any, error) {
	var ask struct {
		Duration int64 `json:"duration"`
	}
	return s.move(r, b, &ask, func() error {
		if ask.Duration < 0 || ask.Duration > 3600 {
			return refuse(http.StatusBadRequest, "duration: want 0 to 3600 seconds")
		}
		d := min(time.Duration(max(ask.Duration, 15))*time.Second, s.cfg.MaxTimeout)
		return b.setEnd(r.Context(), d, true)
	})
}

// move reads what a client asks for and applies it to its sandbox.
func (s *Server) move(r *http.Request, b *sandbox, ask any, apply func() error) (int, any, error) {
	err := readJSON(r, ask, false)
	if err == nil && b.isPaused() { // its time is that of paused sandboxes
		err = notFound(b.id)
	}
	if err == nil {
		err = apply()
	}
	return http.StatusNoContent, nil, err
}

// alias says whether there is a template of a name.
func (s *Server) alias(r *http.Request, _ owner) (int, any, error) {
	name := r.PathValue("alias")
	if _, ok := s.cfg.template(name, s.x.Info().Capabilities); !ok {
		return 0, nil, refuse(http.StatusNotFound, "template %q not found", name)
	}
	return http.StatusOK, map[string]any{"templateID": name, "public": false}, nil
}
