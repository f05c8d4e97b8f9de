package backends

import (
	"errors"
	"slices"

	"github.com/execbroker/execbroker/executor/driver"
)

// Front is an interface of another service that a server serves below a path: see package
// server/compat, which checks it.
type Front struct {
	API  string `json:"api"`            // such as "piston"
	Path string `json:"path,omitempty"` // such as "/piston"; empty: the root, which is then the only front
	// Subject is the subject of requests without a key. AllowUnauthenticated allows them, for
	// interfaces whose clients can send no key. They are set together.
	Subject              string `json:"subject,omitempty"`
	AllowUnauthenticated bool   `json:"allow_unauthenticated,omitempty"`
}

// CORS says which web pages may use a server, with a key: those of Origins, such as
// https://app.example. Nil: none of another origin.
type CORS struct {
	Origins []string `json:"origins,omitempty"`
}

// Located returns err with the positions, in the text that c was parsed from, of the errors that
// are joined in it. It is for programs that check parts of c themselves.
func (c Config) Located(err error) error { return c.at.report(err) }

// sameFronts refuses a change of the fronts and of CORS while the program runs.
func (c Config) sameFronts(next Config) error {
	if !slices.Equal(c.Fronts, next.Fronts) {
		return driver.At("fronts", errors.New("cannot change while the program runs"))
	}
	if !slices.Equal(c.CORS.Origins, next.CORS.Origins) {
		return driver.At("cors", errors.New("cannot change while the program runs"))
	}
	return nil
}
