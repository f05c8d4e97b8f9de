package fake

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// client is a Backend in another process.
type client struct{ http *http.Client }

// Dial returns a driver of the Backend that is served at address.
func Dial(ctx context.Context, address string) (driver.Driver, error) {
	c := &client{&http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", address)
		},
	}}}
	caps, err := ask[executor.Capabilities](ctx, c, "/capabilities", struct{}{})
	if err != nil {
		return nil, err
	}
	remote := remoteDriver{c, caps}
	return compose(remote, remoteAttacher{c}, remoteLister{c}, caps), nil
}

// post sends a request. The answer must be closed.
func (c *client) post(ctx context.Context, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://fake"+path, body)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, err)
	case res.StatusCode != http.StatusOK:
		res.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return res, nil
}

// ask makes a call with the arguments in.
func ask[Out any](ctx context.Context, c *client, path string, in any) (out Out, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	return tell[Out](ctx, c, path, bytes.NewReader(body))
}

// do is ask for a call without a result.
func do(ctx context.Context, c *client, path string, in any) error {
	_, err := ask[struct{}](ctx, c, path, in)
	return err
}

// tell makes a call with any body.
func tell[Out any](ctx context.Context, c *client, path string, body io.Reader) (out Out, err error) {
	res, err := c.post(ctx, path, body)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	var r wireReply
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil {
		return out, err
	}
	if err := r.Err.error(); err != nil {
		return out, err
	}
	return out, json.Unmarshal(r.Result, &out)
}

type remoteDriver struct {
	c    *client
	caps executor.Capabilities
}

func (d remoteDriver) Capabilities() executor.Capabilities { return d.caps }

func (d remoteDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	h, err := ask[wireHolder](ctx, d.c, "/create", c)
	if err != nil {
		stop, done := driver.StopContext(ctx)
		defer done()
		ask[struct{}](stop, d.c, "/abandon", c.ID) // maybe only the answer was lost
		return nil, err
	}
	return &remoteHolder{d.c, "/holder/" + h.Holder, h.Info.info()}, nil
}

func (d remoteDriver) Close() error {
	d.c.http.CloseIdleConnections()
	return nil
}

type remoteAttacher struct{ c *client }

func (d remoteAttacher) Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error) {
	w, err := ask[wireInfo](ctx, d.c, "/lookup", h)
	return w.info(), err
}

func (d remoteAttacher) LastContact(ctx context.Context, h executor.Handle) (time.Time, error) {
	return ask[time.Time](ctx, d.c, "/last-contact", h)
}

func (d remoteAttacher) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	w, err := ask[wireHolder](ctx, d.c, "/attach", h)
	if err != nil {
		return nil, err
	}
	return &remoteHolder{d.c, "/holder/" + w.Holder, w.Info.info()}, nil
}

func (d remoteAttacher) Destroy(ctx context.Context, h executor.Handle) error {
	return do(ctx, d.c, "/destroy", h)
}

type remoteLister struct{ c *client }

func (d remoteLister) Sessions(ctx context.Context, labels map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		found, err := ask[[]wireInfo](ctx, d.c, "/sessions", labels)
		var infos []executor.SessionInfo
		for _, w := range found {
			infos = append(infos, w.info())
		}
		each(yield, infos, err)
	}
}

// each yields the items of a listing and then its error, if any.
func each[T any](yield func(T, error) bool, items []T, err error) {
	for _, i := range items {
		if !yield(i, nil) {
			return
		}
	}
	if err != nil {
		var none T
		yield(none, err)
	}
}

// remoteHolder is a sandbox that this process holds.
type remoteHolder struct {
	c    *client
	path string
	info executor.SessionInfo
}

var (
	_ driver.Session    = (*remoteHolder)(nil)
	_ driver.Detacher   = (*remoteHolder)(nil)
	_ driver.Refresher  = (*remoteHolder)(nil)
	_ driver.Resetter   = (*remoteHolder)(nil)
	_ driver.KeepAliver = (*remoteHolder)(nil)
	_ driver.Installer  = (*remoteHolder)(nil)
	_ driver.Filer      = (*remoteHolder)(nil)
)

func (h *remoteHolder) Info() executor.SessionInfo { return h.info }

func (h *remoteHolder) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	w, err := ask[wireInfo](ctx, h.c, h.path+"/refresh", struct{}{})
	return w.info(), err
}

func (h *remoteHolder) Reset(ctx context.Context, which executor.Interpreter) error {
	return do(ctx, h.c, h.path+"/reset", which)
}

func (h *remoteHolder) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	return ask[time.Time](ctx, h.c, h.path+"/keep-alive", idle)
}

func (h *remoteHolder) Detach() error { return nil }

func (h *remoteHolder) Destroy(ctx context.Context) error {
	return do(ctx, h.c, h.path+"/destroy", struct{}{})
}

func (h *remoteHolder) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	w := wireRequest{*req, req.Stdin != nil}
	w.Request.Stdin = nil
	line, err := json.Marshal(w)
	if err != nil {
		return driver.Exit{}, err
	}
	body := io.Reader(bytes.NewReader(append(line, '\n')))
	if req.Stdin != nil {
		// The transport closes a body that has a Close method and waits for that, so the caller's
		// reader must not look like one.
		body = io.MultiReader(body, struct{ io.Reader }{req.Stdin})
	}
	return h.stream(ctx, h.path+"/run", req.ID, body, emit)
}

func (h *remoteHolder) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return driver.Exit{}, err
	}
	run := rand.Text()
	return h.stream(ctx, h.path+"/install?run="+run, run, bytes.NewReader(body), emit)
}

// stream makes a call whose answer is the events of a run. If ctx ends or emit fails, it cancels
// the run and waits for its end.
func (h *remoteHolder) stream(ctx context.Context, path, run string, body io.Reader, emit func(executor.Event) error) (driver.Exit, error) {
	live, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	over, unwanted := make(chan struct{}), make(chan struct{})
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer close(over)
	stopping.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		case <-unwanted:
		}
		h.cancel(ctx, run, over)
		giveUp()
	})
	res, err := h.c.post(live, path, body)
	if err != nil {
		return driver.Exit{}, err
	}
	defer res.Body.Close()
	var emitErr error
	in, s := json.NewDecoder(res.Body), wireStep{}
	ended := false
	defer func() {
		if ended {
			return
		}
		close(unwanted) // emit has panicked
		for s.Exit == nil && s.Err == nil && in.Decode(&s) == nil {
		}
	}()
	for {
		s = wireStep{}
		if err := in.Decode(&s); err != nil {
			ended = true
			return driver.Exit{}, driver.Fail(executor.ErrUnavailable, executor.RanMaybe, err)
		}
		if s.Event != nil {
			if emitErr != nil {
				continue // the event is not wanted any more
			}
			if emitErr = emit(*s.Event); emitErr != nil {
				close(unwanted)
			}
			continue
		}
		ended = true
		err := s.Err.error()
		switch {
		case s.Exit == nil:
			return driver.Exit{}, err
		case emitErr != nil:
			err = emitErr
		case errors.Is(err, errCanceled):
			err = context.Cause(ctx)
		}
		return *s.Exit, err
	}
}

// cancel cancels a run repeatedly until it is over, or the time for that is. It repeats because the
// request for the run may not have arrived yet.
func (h *remoteHolder) cancel(ctx context.Context, run string, over <-chan struct{}) {
	stop, done := driver.StopContext(ctx)
	defer done()
	for {
		if res, err := h.c.post(stop, "/cancel/"+url.PathEscape(run), nil); err == nil {
			res.Body.Close()
		}
		select {
		case <-over:
			return
		case <-stop.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (h *remoteHolder) Files() driver.Files { return remoteFiles{h} }

type remoteFiles struct{ h *remoteHolder }

func (f remoteFiles) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	data, err := ask[[]byte](ctx, f.h.c, f.h.path+"/read", name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(&contextReader{ctx, bytes.NewReader(data)}), nil
}

func (f remoteFiles) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	source := &errorReader{r: r}
	q := url.Values{"name": {name}, "mode": {fmt.Sprintf("%o", mode.Perm())}}
	_, err := tell[any](ctx, f.h.c, f.h.path+"/write?"+q.Encode(), source)
	if source.err != nil {
		return source.err
	}
	return err
}

// errorReader records the error with which a reader ended.
type errorReader struct {
	r   io.Reader
	err error
}

func (r *errorReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

func (f remoteFiles) Stat(ctx context.Context, name string) (executor.FileInfo, error) {
	return ask[executor.FileInfo](ctx, f.h.c, f.h.path+"/stat", name)
}

func (f remoteFiles) List(ctx context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	return func(yield func(executor.FileInfo, error) bool) {
		infos, err := ask[[]executor.FileInfo](ctx, f.h.c, f.h.path+"/list", dir)
		each(yield, infos, err)
	}
}

func (f remoteFiles) Mkdir(ctx context.Context, name string) error {
	return do(ctx, f.h.c, f.h.path+"/mkdir", name)
}

func (f remoteFiles) Rename(ctx context.Context, from, to string) error {
	return do(ctx, f.h.c, f.h.path+"/rename", [2]string{from, to})
}

func (f remoteFiles) Remove(ctx context.Context, name string) error {
	return do(ctx, f.h.c, f.h.path+"/remove", name)
}
