package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/stdin"
)

// maxPiece is the largest input in bytes that one request may send to a run. Only a few such pieces
// wait for a run at the same time.
const maxPiece = 64 << 10

// typing is what clients can send to a run in progress.
type typing struct {
	input    *stdin.Input       // nil: the run was begun without input
	terminal *executor.Terminal // nil: the run has no terminal
}

// typing returns the typing of the run that a request names.
func (s *Server) typing(r *http.Request, b *session) (*typing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := b.runs[r.PathValue("run")]
	if t == nil {
		return nil, refuse(http.StatusNotFound, "not-found", "there is no such run; it has ended, or was begun without an id")
	}
	return t, nil
}

// send sends input to a run.
func (s *Server) send(w http.ResponseWriter, r *http.Request, _ Client, b *session) (int, any, error) {
	t, err := s.typing(r, b)
	if err != nil {
		return 0, nil, err
	}
	if t.input == nil {
		return 0, nil, refuse(http.StatusConflict, "no-input", "the run was begun without input: true")
	}
	piece, err := s.arrive(w, r, maxPiece)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.BodyTime)
	defer cancel()
	switch err := t.input.Send(ctx, piece); {
	case errors.Is(err, stdin.ErrClosed):
		return 0, nil, refuse(http.StatusConflict, "no-input", "the input of the run has ended")
	case err != nil && r.Context().Err() == nil:
		return 0, nil, refuse(http.StatusConflict, "busy", "the code does not read its input; none of this input was accepted")
	case err != nil:
		return 0, nil, err
	}
	if r.URL.Query().Get("end") == "true" {
		t.input.Close()
	}
	return http.StatusNoContent, nil, nil
}

// resize sets the size of the terminal of a run.
func (s *Server) resize(w http.ResponseWriter, r *http.Request, _ Client, b *session) (int, any, error) {
	t, err := s.typing(r, b)
	if err != nil {
		return 0, nil, err
	}
	if t.terminal == nil {
		return 0, nil, refuse(http.StatusConflict, "no-terminal", "the run has no terminal")
	}
	var size executor.TerminalSize
	if err := s.body(w, r, &size); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, t.terminal.Resize(size)
}
