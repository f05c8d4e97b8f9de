package e2b

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"regexp"
	"sync"
	"time"
)

const (
	keepAnswers = 24 * time.Hour
	maxAnswers  = 10_000 // of all clients together
)

// idempotencyKey is what the header Idempotency-Key may hold.
var idempotencyKey = regexp.MustCompile(`^[a-z0-9-]{1,255}$`)

// onces remembers what was answered to requests with an idempotency key.
type onces struct {
	mu   sync.Mutex
	seen map[onceKey]*once
}

type onceKey struct {
	owner owner
	key   string
}

// once is one request that was sent with a key, perhaps several times.
type once struct {
	body   [sha256.Size]byte
	at     time.Time
	done   bool
	status int
	answer any
	err    error
}

// idempotently calls f, or repeats its answer if the client has sent the request before. Only the
// newer path knows the header.
func (s *Server) idempotently(r *http.Request, o owner, known bool, f func(body []byte) (int, any, error)) (int, any, error) {
	body, err := readBody(r)
	if err != nil {
		return 0, nil, err
	}
	keys := r.Header.Values("Idempotency-Key")
	if !known || len(keys) == 0 {
		return f(body)
	}
	if len(keys) > 1 || !idempotencyKey.MatchString(keys[0]) {
		return 0, nil, refuse(http.StatusBadRequest, "Idempotency-Key: want one of 1 to 255 lower-case letters, digits and dashes")
	}
	c, repeated, err := s.once.enter(onceKey{o, keys[0]}, sha256.Sum256(body))
	switch {
	case repeated:
		return c.status, c.answer, err
	case err != nil:
		return 0, nil, err
	}
	status, answer, err := f(body)
	if r.Context().Err() != nil {
		// The client has not seen the answer, and one that was given up tells nothing: it may try
		// again.
		s.once.forget(onceKey{o, keys[0]})
		return status, answer, err
	}
	s.once.mu.Lock()
	defer s.once.mu.Unlock()
	c.done, c.status, c.answer, c.err = true, status, answer, err
	return status, answer, err
}

// enter finds or makes the entry of a key.
func (m *onces) enter(k onceKey, body [sha256.Size]byte) (c *once, repeated bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if c := m.seen[k]; c != nil && now.Sub(c.at) < keepAnswers {
		switch {
		case !bytes.Equal(c.body[:], body[:]):
			return nil, false, &apiError{Status: http.StatusConflict, Message: "the key was used with another request", Code: "idempotency_request_mismatch"}
		case !c.done:
			return nil, false, &apiError{Status: http.StatusConflict, Message: "the request is being worked on; ask again", Code: "idempotency_in_progress"}
		}
		return c, true, c.err
	}
	if len(m.seen) >= maxAnswers {
		for k, c := range m.seen {
			if now.Sub(c.at) >= keepAnswers {
				delete(m.seen, k)
			}
		}
		if len(m.seen) >= maxAnswers {
			return nil, false, refuse(http.StatusServiceUnavailable, "too many requests with an idempotency key; send it without one")
		}
	}
	if m.seen == nil {
		m.seen = map[onceKey]*once{}
	}
	c = &once{body: body, at: now}
	m.seen[k] = c
	return c, false, nil
}

func (m *onces) forget(k onceKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, k)
}
