package flymachines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
)

// The actions, as their rates are counted.
const (
	actionCreate  = "create"
	actionGet     = "get"
	actionList    = "list"
	actionWait    = "wait"
	actionDestroy = "destroy"
	actionSuspend = "suspend"
	actionStart   = "start"
	actionApp     = "app"
)

// api is the Machines API for one app.
type api struct {
	app   string
	flaps *flaps.Client
	http  *http.Transport
	rates *rates
}

func newAPI(ctx context.Context, env driver.Env, cfg *Config) (*api, error) {
	to, err := url.Parse(cmp.Or(cfg.API, PublicAPI))
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone() // with the proxy of the environment, if there is one
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	t.ResponseHeaderTimeout = waitSlice + waitSlack
	c, err := flaps.NewWithOptions(ctx, flaps.NewClientOpts{
		UserAgent: "execbroker", Transport: &transport{next: t, to: to, token: cfg.Token},
	}) // without a Logger: it would show bodies
	if err != nil {
		return nil, fmt.Errorf("fly-go: %w", err)
	}
	return &api{app: cfg.App, flaps: c, http: t, rates: ratesOf(env, to.String(), cfg.App, cfg.Rate)}, nil
}

func (a *api) close() { a.http.CloseIdleConnections() }

// Pauses between attempts.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	attempts   = 6
	dials      = 3 // without a connection: whoever waits can be served elsewhere
)

// The time limits of the API. If it hangs, callers have to be able to go elsewhere within seconds.
const (
	dialTimeout = 5 * time.Second
	callTimeout = 15 * time.Second // of one attempt; a create takes one to three seconds, as reported
	listTimeout = time.Minute      // of one attempt: an app may have thousands of Machines
	lostTimeout = 15 * time.Second // of all attempts that came to nothing, until the last one begins
	seekTimeout = 10 * time.Second // to find what a create has made whose answer was lost
	waitSlack   = 15 * time.Second // of a wait, beyond what it asks for
)

// pause returns how long to wait before the next attempt.
func pause(n int, e *APIError) time.Duration {
	d := min(firstPause<<min(n, 10), lastPause)
	d = d/2 + rand.N(d/2) // others had the same fate at the same time
	return max(d, e.RetryAfter)
}

// call calls f once, at the rate of the action.
func (a *api) call(ctx context.Context, action, target string, timeout time.Duration, f func(context.Context) error) error {
	if err := a.rates.wait(ctx, action, target); err != nil {
		return err
	}
	cctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cctx, at := withAttempt(cctx)
	err := f(cctx)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.status >= 200 && at.status < 300 { // an answer that fly-go could not decode
		return driver.Fail(executor.ErrInternal, executor.RanNo, fmt.Errorf("machines API: %s: %w (fly-request-id %s)", action, err, at.requestID))
	}
	if at.status == 0 && at.err == nil {
		at.err = err
	}
	e := classify(action, at)
	if e.class == classRate {
		a.rates.refused(ctx, action, target)
	}
	return e
}

// repeat is call, repeated within reason, for calls that may be made twice. Only a destroy waits as
// long as Fly asks for.
func (a *api) repeat(ctx context.Context, action, target string, f func(context.Context) error) error {
	known, begin, timeout := "", time.Now(), callTimeout
	if action == actionList {
		timeout = listTimeout
	}
	for n := 0; ; n++ {
		err := a.call(ctx, action, target, timeout, f)
		var e *APIError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &e):
			return after(err, known)
		case !slices.Contains([]class{classLost, classUnsent, classRate, classNotYet}, e.class), n+1 >= attempts,
			n+1 >= dials && e.class == classUnsent, e.class == classLost && time.Since(begin) > lostTimeout, e.tooLong() && action != actionDestroy:
			return err
		}
		known = e.Error()
		if err := remote.Pause(ctx, pause(n, e)); err != nil {
			return after(err, known)
		}
	}
}

func (a *api) get(ctx context.Context, id string) (m *fly.Machine, err error) {
	err = a.repeat(ctx, actionGet, id, func(ctx context.Context) error { m, err = a.flaps.Get(ctx, a.app, id); return err })
	return m, err
}

// list returns the Machines that carry metadata.
func (a *api) list(ctx context.Context, key, value string) (ms []*fly.Machine, err error) {
	q := url.Values{"metadata." + key: {value}}.Encode()
	// What the client takes for a state is the query.
	err = a.repeat(ctx, actionList, a.app, func(ctx context.Context) error { ms, err = a.flaps.List(ctx, a.app, q); return err })
	// The filter may be of a later version than the answer.
	kept := ms[:0]
	for _, m := range ms {
		if m != nil && (m.GetConfig() == nil || m.GetMetadataByKey(key) == value) {
			kept = append(kept, m)
		}
	}
	return kept, err
}

// destroy destroys a Machine. One that is gone is not an error.
func (a *api) destroy(ctx context.Context, id string) error {
	err := a.repeat(ctx, actionDestroy, id, func(ctx context.Context) error {
		return a.flaps.Destroy(ctx, a.app, fly.RemoveMachineInput{ID: id, Kill: true}, "")
	})
	var e *APIError
	if errors.As(err, &e) && e.class == classMissing {
		return nil
	}
	return err
}

// waitSlice is the longest wait that the API takes.
const waitSlice = 60 * time.Second

// waitFor waits once until a Machine has one of the states, for a slice at most. If the time is
// over, the error is a classLost.
func (a *api) waitFor(ctx context.Context, id string, states ...string) error {
	slice := waitSlice
	if deadline, ok := ctx.Deadline(); ok {
		slice = max(time.Second, min(slice, time.Until(deadline).Truncate(time.Second)))
	}
	return a.call(ctx, actionWait, id, slice+waitSlack, func(ctx context.Context) error {
		return a.flaps.Wait(ctx, a.app, id, flaps.WithWaitStates(states...), flaps.WithWaitTimeout(slice))
	})
}
