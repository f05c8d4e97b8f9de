package front

import (
	"errors"
	"io"
	"net/http"
)

// ErrBody says that the body of a request did not arrive in time.
var ErrBody = errors.New("the body did not arrive")

// Body reads the whole body of a request. The error is an *http.MaxBytesError or ErrBody. The
// connection ends with the answer then.
func Body(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		return body, nil
	}
	if large := (*http.MaxBytesError)(nil); !errors.As(err, &large) {
		err = ErrBody
	}
	return nil, err
}
