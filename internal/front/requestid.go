package front

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"strings"
)

// RequestIDHeader has the name of a request, in requests and in answers.
const RequestIDHeader = "X-Request-Id"

type key struct{}

// RequestIDForm is what is taken over from a client: it goes back in a header and into logs.
var RequestIDForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// named returns r with a name: the client's if that has the form, otherwise one by chance.
func named(w http.ResponseWriter, r *http.Request) *http.Request {
	id := r.Header.Get(RequestIDHeader)
	if !RequestIDForm.MatchString(id) {
		id = strings.ToLower(rand.Text())
	}
	w.Header().Set(RequestIDHeader, id)
	return r.WithContext(WithRequestID(r.Context(), id))
}

// WithRequestID returns ctx for a request with a name.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// RequestID returns the name of the request that ctx is of, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
