package front

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"strings"
)

// RequestIDHeader contains the ID of a request, in requests and in answers.
const RequestIDHeader = "X-Request-Id"

type key struct{}

// RequestIDForm matches the IDs that are accepted from a client: they are returned in a header and
// written to logs.
var RequestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// named returns r with an ID: the client's if it has the right form, otherwise a random one.
func named(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(RequestIDHeader)
	if !RequestIDForm.MatchString(id) {
		id = strings.ToLower(rand.Text())
	}
	w.Header().Set(RequestIDHeader, id)
	return r.WithContext(WithRequestID(r.Context(), id))
}

// WithRequestID returns ctx with the ID of a request.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// RequestID returns the ID of the request of ctx, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
