package flymachines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
)

// maxAnswer bounds an answer of the API: a list has the whole configuration of every Machine, its
// files included.
const maxAnswer = 256 << 20

// attempt is the outcome of one call of fly-go. fly-go repeats requests by itself, whatever their
// method: after 502, 503 and reset connections. A transport cannot turn that off, but it sees the
// context of the call and refuses the second request.
type attempt struct {
	mu         sync.Mutex
	sent       bool
	status     int // of the answer; 0: there was none
	body       []byte
	requestID  string
	retryAfter time.Duration
	err        error // of the connection
}

type attemptKey struct{}

// withAttempt returns a context with which a request is sent once, and its outcome.
func withAttempt(ctx context.Context) (context.Context, *attempt) {
	a := &attempt{}
	return context.WithValue(ctx, attemptKey{}, a), a
}

// errNotRepeated is what fly-go sees instead of a failure. It wraps nothing, so that fly-go does
// not take it for temporary.
var errNotRepeated = errors.New("flymachines: not repeated")

// transport is between fly-go and the network.
type transport struct {
	next  http.RoundTripper
	to    *url.URL // of the API, whatever the environment says to fly-go
	token driver.Secret
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a, ok := req.Context().Value(attemptKey{}).(*attempt)
	if !ok { // a call of a user of As
		_, a = withAttempt(req.Context())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent {
		return nil, errNotRepeated
	}
	a.sent = true
	token, err := t.token.Value()
	if err != nil {
		a.err = &tokenError{err}
		return nil, errNotRepeated
	}
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = t.to.Scheme, t.to.Host, ""
	req.URL.Path = strings.TrimSuffix(t.to.Path, "/") + req.URL.Path
	req.Header.Set("Authorization", authorization(token))
	req.Header.Del("Fly-Force-Instance-Id") // from a variable that is about something else
	if req.Body != nil && req.GetBody != nil {
		// A body of its own: layers above read theirs at the same time when they give up.
		if req.Body, err = req.GetBody(); err != nil {
			a.err = err
			return nil, errNotRepeated
		}
	}
	res, err := t.next.RoundTrip(req)
	if err != nil {
		a.err = err
		return nil, errNotRepeated
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	res.Body.Close()
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	a.status, a.requestID = res.StatusCode, clip(res.Header.Get("Fly-Request-Id"), 100)
	a.retryAfter = retryAfter(res.Header.Get("Retry-After"))
	if err != nil {
		a.status, a.err = 0, err // what was done is not known
		return nil, errNotRepeated
	}
	if res.StatusCode > 299 {
		a.body = body[:min(len(body), 4<<10)]
		return nil, errNotRepeated
	}
	body = lenient(body)
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return res, nil
}

// authorization returns the header for a token: macaroons have a scheme of their own.
func authorization(token string) string {
	switch {
	case strings.HasPrefix(token, "FlyV1 "), strings.HasPrefix(token, "Bearer "):
		return token
	case strings.HasPrefix(token, "fm"):
		return "FlyV1 " + token
	}
	return "Bearer " + token
}

// maxRetryAfter is the longest Retry-After that is believed.
const maxRetryAfter = time.Minute

func retryAfter(value string) time.Duration {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// lenient corrects answers of Fly that fly-go cannot decode, so that the rest of a Machine can be
// used.
func lenient(body []byte) []byte {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return []byte("{}")
	case !bytes.Contains(body, []byte(`"exited_at"`)) && !bytes.Contains(body, []byte(`"persist_rootfs"`)):
		return body
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || !mend(v) {
		return body
	}
	b, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return b
}

// mend changes values in v, and reports whether there were any to change.
func mend(v any) (changed bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			changed = mend(e) || changed
		}
	case map[string]any:
		for k, e := range v {
			switch n, isNumber := e.(json.Number); {
			case k == "exited_at" && isNumber: // milliseconds, in old documents
				ms, _ := n.Int64() // what is none is the beginning of time
				v[k], changed = time.UnixMilli(ms).UTC(), true
			case k == "persist_rootfs" && e != "never" && e != "always" && e != "restart":
				delete(v, k)
				changed = true
			default:
				changed = mend(e) || changed
			}
		}
	}
	return changed
}
