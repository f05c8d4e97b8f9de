// Package requestid gives every request to a server a name, which the client is told and the log has, so that both are found together.
package requestid

import (
	"context"
	"crypto/rand"
	"net/http"
	"regexp"
	"strings"
)

// Header has the name, in requests and in answers.
const Header = "X-Request-Id"

type key struct{}

// Form is what is taken over from a client: it goes back in a header and into logs.
var Form = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Handler names each request before next gets it: as the client does if that has the Form, otherwise by chance.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(Header)
		if !Form.MatchString(id) {
			id = strings.ToLower(rand.Text())
		}
		w.Header().Set(Header, id)
		next.ServeHTTP(w, r.WithContext(With(r.Context(), id)))
	})
}

// With returns ctx for a request with a name.
func With(ctx context.Context, id string) context.Context { return context.WithValue(ctx, key{}, id) }

// Of returns the name of the request that ctx is of, or "".
func Of(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
