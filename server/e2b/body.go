package e2b

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// timed bounds the length of a body, and the time in which it has to arrive: a slow one would hold
// a connection for ever. What is done when it has arrived has all the time that it needs.
func timed(w http.ResponseWriter, r *http.Request, most int64, d time.Duration) {
	if r.Body == http.NoBody {
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(d)) // a ResponseWriter of tests has none
	r.Body = &timedBody{http.MaxBytesReader(w, r.Body, most), rc}
}

// timedBody is a body with a read deadline of the connection, which must not be set once the whole
// body has arrived: see mortalBody.
type timedBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// mortalBody is the body of a request to a sandbox. A Read that waits for it ends when the sandbox
// does.
//
// A read deadline of the connection ends the wait. It must not be set once the whole body has
// arrived: net/http then reads on to notice that the client leaves, and takes an expired deadline
// for that. It would end the context of this request and of all later ones on the connection.
type mortalBody struct {
	io.ReadCloser
	rc    *http.ResponseController
	life  context.Context
	whole atomic.Bool
}

func (b *mortalBody) Read(p []byte) (int, error) {
	if b.life.Err() != nil {
		return 0, context.Cause(b.life)
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}

// watch ends a Read when the life of the sandbox ends, until the function that it returns is
// called.
func (b *mortalBody) watch() (stop func()) {
	over := make(chan struct{})
	wait := context.AfterFunc(b.life, func() {
		defer close(over)
		if !b.whole.Load() {
			_ = b.rc.SetReadDeadline(time.Unix(1, 0)) // a ResponseWriter of tests has none
		}
	})
	return func() {
		if !wait() {
			<-over
			_ = b.rc.SetReadDeadline(time.Time{}) // the connection may have another request
		}
	}
}
