package front

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// ErrBody says that the body of a request did not arrive in time.
var ErrBody = errors.New("the body did not arrive")

// Body reads the whole body of a request in bounded time. The error is an *http.MaxBytesError or
// ErrBody. The connection ends with the answer then.
func Body(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) ([]byte, error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(within)) // the ResponseWriter of a test has no deadline
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{})
		return body, nil
	}
	// The deadline stays set, because net/http waits for the rest of a body before it answers.
	w.Header().Set("Connection", "close")
	if large := (*http.MaxBytesError)(nil); !errors.As(err, &large) {
		err = ErrBody
	}
	return nil, err
}
