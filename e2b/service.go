package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
)

// service is the control plane.
type service struct {
	cfg  *Config
	http *http.Client
	code *http.Transport // to code interpreters
	api  *api.Client
	v1   atomic.Bool // it has the older paths only
	ping time.Duration
}

const (
	userAgent = "execbroker"
	maxAnswer = 16 << 20 // of the control plane
	// keepIdle is less than the shortest idle limit that is known of what stands before the
	// service.
	keepIdle = 90 * time.Second
)

func newService(cfg *Config) (*service, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // transfers are checked by their length
	t.IdleConnTimeout = keepIdle
	t.MaxIdleConnsPerHost = 16
	s := &service{cfg: cfg, ping: pingInterval, code: codeTransport(t), http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	c, err := api.NewClient(cfg.apiURL(), api.WithHTTPClient(s.http), api.WithRequestEditorFn(s.sign))
	if err != nil {
		return nil, err
	}
	s.api = c
	return s, nil
}

// sign adds the key to a request. The key is read for each request, because keys are renewed.
func (s *service) sign(_ context.Context, r *http.Request) error {
	key, err := s.cfg.key().Value()
	if err != nil {
		return err
	}
	// Go's client repeats a request that has this header by its usual name after a broken
	// connection, and services of the older generation would make a second sandbox. In other
	// letters it is the same to the service.
	if v, ok := r.Header["Idempotency-Key"]; ok {
		delete(r.Header, "Idempotency-Key")
		r.Header["idempotency-key"] = v
	}
	r.Header.Set("X-API-KEY", key)
	r.Header.Set("User-Agent", userAgent)
	return nil
}

// answer bounds one request.
func (s *service) answer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.cfg.timeout(), errNoAnswer)
}

// ask sends a request once and decodes the answer into out, which may be nil. sandbox is for
// errors. Of the header there is what has come.
func (s *service) ask(ctx context.Context, sandbox string, send func(context.Context) (*http.Response, error), out any) (http.Header, error) {
	if _, err := s.cfg.key().Value(); err != nil {
		return nil, fmt.Errorf("%w: %w", errKey, err)
	}
	r, err := send(ctx)
	if err != nil {
		return nil, err
	}
	if r.StatusCode < 200 || r.StatusCode > 299 {
		return r.Header, readError(r, sandbox)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil:
		return r.Header, fmt.Errorf("the answer broke off: %w", err)
	case len(body) > maxAnswer:
		return r.Header, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case out == nil:
		return r.Header, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return r.Header, fmt.Errorf("the answer is not that of the service: %w: %s", err, printable(string(body), maxMessage))
	}
	return r.Header, nil
}

// The repetition of requests.
const (
	attempts   = 4
	firstPause = 200 * time.Millisecond
	longPause  = 20 * time.Second
)

// repeat does a request that may be done twice, again if it fails for a while.
func (s *service) repeat(ctx context.Context, sandbox string, send func(context.Context) (*http.Response, error), out any) (http.Header, error) {
	for n := 0; ; n++ {
		actx, cancel := s.answer(ctx)
		h, err := s.ask(actx, sandbox, send, out)
		if err != nil && actx.Err() != nil {
			err = context.Cause(actx)
		}
		cancel()
		if err == nil || n+1 == attempts || !passing(err) || !pause(ctx, n, err) {
			return h, err
		}
	}
}

// passing reports whether a request that failed may succeed later. Its repetition must do no harm.
func passing(err error) bool {
	var said *ServiceError
	if !errors.As(err, &said) {
		return !errors.Is(err, errKey) && !errors.Is(err, context.Canceled)
	}
	switch said.retry {
	case "true":
		return true
	case "false":
		return false
	}
	switch said.Status {
	case http.StatusTooManyRequests:
		return !said.quota()
	case http.StatusConflict:
		return said.Sandbox != "" // it is between two states
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInternalServerError:
		return !said.gone()
	}
	return false
}

// pause waits for a random time before a request is repeated, so that many clients do not come back
// together. It reports whether there was time.
func pause(ctx context.Context, n int, err error) bool {
	d := time.Duration(rand.Int64N(int64(firstPause << n))) //nolint:gosec // nothing is guarded by it
	var said *ServiceError
	if errors.As(err, &said) && said.RetryAfter > 0 {
		d += said.RetryAfter
	}
	if end, ok := ctx.Deadline(); d > longPause || ok && time.Until(end) < d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unsent reports whether a request that failed has not reached the service.
func unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, errKey) || errors.As(err, &op) && op.Op == "dial"
}

var errKey = errors.New("no key of the service")

// older reports whether a path of the newer generation does not exist. A template that does not
// exist has the same status.
func older(err error) bool {
	var said *ServiceError
	if !errors.As(err, &said) {
		return false
	}
	return said.Status == http.StatusMethodNotAllowed ||
		said.Status == http.StatusNotFound && said.Sandbox == "" && !strings.Contains(strings.ToLower(said.Message), "template")
}

var sandboxID = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// create asks for a sandbox once. By key the service recognizes a repeated request.
func (s *service) create(ctx context.Context, body api.NewSandbox, key string) (*api.Sandbox, error) {
	var made api.Sandbox
	ctx, cancel := s.answer(ctx)
	defer cancel()
	newer := func(ctx context.Context) (*http.Response, error) {
		return s.api.CreateSandbox(ctx, &api.CreateSandboxParams{IdempotencyKey: &key}, body)
	}
	var err error
	if !s.v1.Load() {
		_, err = s.ask(ctx, "", newer, &made)
		if !older(err) {
			return checked(ctx, &made, err)
		}
	}
	secure := true
	body.Secure = &secure
	_, v1err := s.ask(ctx, "", func(ctx context.Context) (*http.Response, error) { return s.api.CreateSandboxV1(ctx, body) }, &made)
	if err != nil && v1err != nil && older(v1err) {
		return nil, err
	}
	if v1err == nil {
		s.v1.Store(true)
	}
	return checked(ctx, &made, v1err)
}

func checked(ctx context.Context, made *api.Sandbox, err error) (*api.Sandbox, error) {
	if err == nil && !sandboxID.MatchString(made.SandboxID) {
		err = fmt.Errorf("the answer is not that of the service: sandbox %.80q", made.SandboxID)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	return made, nil
}

// connect returns how to reach a sandbox. seconds may only extend its life.
func (s *service) connect(ctx context.Context, id string, seconds int64) (*api.Sandbox, error) {
	var found api.Sandbox
	body := api.ConnectSandbox{Timeout: seconds}
	err := errors.New("")
	if !s.v1.Load() {
		_, err = s.repeat(ctx, id, func(ctx context.Context) (*http.Response, error) { return s.api.ConnectSandbox(ctx, id, body) }, &found)
	}
	var said *ServiceError
	// Whether the path or the sandbox is not there tells the older path.
	if s.v1.Load() || errors.As(err, &said) && (said.Status == http.StatusNotFound || said.Status == http.StatusMethodNotAllowed) {
		_, err = s.repeat(ctx, id, func(ctx context.Context) (*http.Response, error) { return s.api.ConnectSandboxV1(ctx, id, body) }, &found)
	}
	if err != nil {
		return nil, err
	}
	return checked(ctx, &found, nil)
}

// get describes a sandbox. offset is how far the clock of the service is ahead of ours.
func (s *service) get(ctx context.Context, id string) (d *api.SandboxDetail, offset time.Duration, err error) {
	d = new(api.SandboxDetail)
	h, err := s.repeat(ctx, id, func(ctx context.Context) (*http.Response, error) { return s.api.GetSandbox(ctx, id) }, d)
	return d, clockOffset(h), err
}

// clockOffset returns how far the clock of the service is ahead of ours. Its answers have whole
// seconds, so smaller differences count as none.
func clockOffset(h http.Header) time.Duration {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	if off := time.Until(t); off.Abs() > 2*time.Second {
		return off
	}
	return 0
}

// kill ends a sandbox. One that is gone is no error.
func (s *service) kill(ctx context.Context, id string) error {
	_, err := s.repeat(ctx, id, func(ctx context.Context) (*http.Response, error) { return s.api.KillSandbox(ctx, id) }, nil)
	var said *ServiceError
	if errors.As(err, &said) && said.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// setTimeout makes a sandbox end after so many seconds from now.
func (s *service) setTimeout(ctx context.Context, id string, seconds int64) error {
	_, err := s.repeat(ctx, id, func(ctx context.Context) (*http.Response, error) {
		return s.api.SetTimeout(ctx, id, api.SetTimeout{Timeout: seconds})
	}, nil)
	return err
}

// pageSize is the most that the service lists at once.
const pageSize = 100

// page lists sandboxes with given metadata, from where the last page ended.
func (s *service) page(ctx context.Context, metadata map[string]string, from string) (list []api.SandboxDetail, next string, err error) {
	query := escapeMetadata(metadata)
	limit, states := pageSize, []api.State{api.Running, api.Paused}
	newer := api.ListSandboxesParams{Metadata: &query, Limit: &limit, State: &states}
	if from != "" {
		newer.NextToken = &from
	}
	if !s.v1.Load() {
		var h http.Header
		h, err = s.repeat(ctx, "", func(ctx context.Context) (*http.Response, error) { return s.api.ListSandboxes(ctx, &newer) }, &list)
		if !older(err) {
			return list, h.Get("X-Next-Token"), err
		}
	}
	_, err = s.repeat(ctx, "", func(ctx context.Context) (*http.Response, error) {
		return s.api.ListSandboxesV1(ctx, &api.ListSandboxesV1Params{Metadata: &query})
	}, &list)
	return list, "", err
}

// all lists sandboxes with given metadata. The number of pages is bounded.
func (s *service) all(ctx context.Context, metadata map[string]string, yield func(api.SandboxDetail) bool) error {
	seen := map[string]bool{}
	for from := ""; ; {
		list, next, err := s.page(ctx, metadata, from)
		if err != nil {
			return err
		}
		for _, d := range list {
			if sandboxID.MatchString(d.SandboxID) && !seen[d.SandboxID] {
				seen[d.SandboxID] = true
				if !yield(d) {
					return nil
				}
			}
		}
		if next == "" || next == from || len(list) == 0 {
			return nil
		}
		from = next
	}
}

// escapeMetadata makes the parameter that filters by metadata: a query string whose keys and values
// are escaped before it is made of them.
func escapeMetadata(m map[string]string) string {
	v := url.Values{}
	for key, value := range m {
		v.Set(escape(key), escape(value))
	}
	return v.Encode()
}

// escape escapes as programs in other languages do: a space is not "+".
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
