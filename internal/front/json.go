package front

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// Answer answers with v as JSON, or with status 500 and failed if v cannot be encoded.
func Answer(w http.ResponseWriter, status int, v any, failed string) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(failed)
	}
	Text(w, status, "application/json", append(b, '\n'))
}

// Text answers with content whose type is kind. An answer of known length leaves the connection
// open: see Bounded.
func Text(w http.ResponseWriter, status int, kind string, content []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	_, _ = w.Write(content) // a client that has disconnected needs no answer
}
