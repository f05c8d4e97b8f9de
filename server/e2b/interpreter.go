package e2b

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/execbroker/execbroker/internal/front"
)

const maxCode = 16 << 20 // of the body of a request with code

// serveInterpreter serves the code interpreter of a sandbox. It needs no token, like that of E2B:
// clients send one with some requests only. A token that is sent is checked. Errors are plain text.
func (b *sandbox) serveInterpreter(w http.ResponseWriter, r *http.Request) {
	if token := r.Header.Get("X-Access-Token"); token != "" && !sameToken(token, b.token) {
		textError(w, refuse(http.StatusUnauthorized, "the header X-Access-Token is wrong"))
		return
	}
	front.Admit(r.Context()) // the ID of a sandbox is all that these clients have
	r.Body = http.MaxBytesReader(w, r.Body, maxCode)
	m := http.NewServeMux()
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, "OK") })
	m.HandleFunc("POST /execute", b.execute)
	m.HandleFunc("GET /contexts", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, b.contexts.list()) })
	m.HandleFunc("POST /contexts", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Language string `json:"language"`
			Cwd      string `json:"cwd"`
		}
		if readFields(w, r, &ask) {
			x, err := b.contexts.add(ask.Language, ask.Cwd)
			textOr(w, x, err)
		}
	})
	m.HandleFunc("DELETE /contexts/{id}", func(w http.ResponseWriter, r *http.Request) {
		x, err := b.contexts.find(r.PathValue("id"), "")
		if err == nil {
			err = b.restart(r.Context(), x)
		}
		if err == nil && x.ID != string(x.Language) { // that of a language is always there
			b.contexts.remove(x)
		}
		textOr(w, nil, err)
	})
	m.HandleFunc("POST /contexts/{id}/restart", func(w http.ResponseWriter, r *http.Request) {
		x, err := b.contexts.find(r.PathValue("id"), "")
		if err == nil {
			err = b.restart(r.Context(), x)
		}
		textOr(w, nil, err)
	})
	m.ServeHTTP(w, r)
}

// readFields decodes a body. If it cannot, it answers and returns false.
func readFields(w http.ResponseWriter, r *http.Request, v any) bool {
	err := readJSON(r, v, false)
	if err == nil {
		return true
	}
	if e := asAPIError(err); e.Status != http.StatusBadRequest {
		textError(w, e)
	} else {
		writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []map[string]any{{"loc": []string{"body"}, "msg": e.Message, "type": "value_error"}}})
	}
	return false
}

func textError(w http.ResponseWriter, err error) {
	e := asAPIError(err)
	front.Text(w, e.Status, "text/plain; charset=utf-8", []byte(e.Message))
}

func textOr(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		textError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

// codeRequest is the body of POST /execute.
type codeRequest struct {
	Code      *string           `json:"code"`
	ContextID string            `json:"context_id"`
	Language  string            `json:"language"`
	EnvVars   map[string]string `json:"env_vars"`
}

var errNoCode = errors.New("code: is required")

// codeEvent is a line of the stream of /execute.
type codeEvent struct {
	Type           string  `json:"type"`
	ExecutionCount int     `json:"execution_count,omitempty"`
	Text           *string `json:"text,omitempty"`
	Timestamp      string  `json:"timestamp,omitempty"`
	Name           *string `json:"name,omitempty"`
	Value          *string `json:"value,omitempty"`
	Traceback      *string `json:"traceback,omitempty"`
}

func (e codeEvent) line() []byte { return jsonLine(e) }

// jsonLine encodes a line in ASCII: E2B's SDKs decode each piece that they read by itself, and lose
// characters that are split between two.
func jsonLine(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // only plain types of this package and valid JSON get here
		b = []byte(`{"type":"keepalive"}`)
	}
	plain := make([]byte, 0, len(b)+1)
	for _, r := range string(b) {
		switch {
		case r < utf8.RuneSelf:
			plain = append(plain, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			plain = fmt.Appendf(plain, `\u%04x\u%04x`, high, low)
		default:
			plain = fmt.Appendf(plain, `\u%04x`, r)
		}
	}
	return append(plain, '\n')
}
