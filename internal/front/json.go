package front

import (
	"encoding/json"
	"net/http"
)

// Answer answers with v as JSON, or with status 500 and failed if v cannot be encoded.
func Answer(w http.ResponseWriter, status int, v any, failed string) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(failed)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has disconnected needs no answer
}
