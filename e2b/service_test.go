package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// scripted is a control plane whose answers a test writes down. It counts what was asked for.
type scripted struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // "POST /v2/sandboxes"
	keys  []string // of creates
	body  []byte   // of the last one
}

// script makes a control plane. answer gets the number of the request among those of its kind.
func script(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, what string, n int)) *scripted {
	s := &scripted{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		s.mu.Lock()
		n := 0
		for _, w := range s.asked {
			if w == what {
				n++
			}
		}
		s.asked = append(s.asked, what)
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes") {
			s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
			s.body, _ = io.ReadAll(r.Body)
		}
		s.mu.Unlock()
		answer(w, r, what, n)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) count(prefix string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.asked {
		if strings.HasPrefix(w, prefix) {
			n++
		}
	}
	return n
}

func (s *scripted) open(t *testing.T) executor.Executor {
	t.Helper()
	cfg := emulated(s.URL)
	cfg.Networks = nil
	x, err := Open(t.Context(), driver.Env{Owner: "test"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

const (
	quotaText = "you have reached the maximum number of concurrent E2B sandboxes (20)"
	gateway   = "<html><head><title>504 Gateway Time-out</title></head></html>"
)

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("X-E2B-Trace-ID", "trace-1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func apiMessage(status int, message string) map[string]any {
	return map[string]any{"code": status, "message": message}
}

// A failed create says what failed, is asked for again only if it certainly made nothing, and what
// it may have made is looked for.
func TestCreateAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer func(w http.ResponseWriter, n int)
		kind   error
		text   string
		asked  int  // for a sandbox
		looked bool // for what may have been made
	}{
		{"401", func(w http.ResponseWriter, _ int) { answerJSON(w, 401, apiMessage(401, "bad key")) }, executor.ErrAuth, "check the key, which is environment variable " + testKey, 1, false},
		{"403-template", func(w http.ResponseWriter, _ int) { answerJSON(w, 403, apiMessage(403, "no access")) }, executor.ErrAuth, "trace trace-1", 1, false},
		{"404-template", func(w http.ResponseWriter, _ int) { answerJSON(w, 404, apiMessage(404, "template 'base' not found")) }, executor.ErrInvalid, "template 'base' not found", 1, false},
		{"400", func(w http.ResponseWriter, _ int) {
			answerJSON(w, 400, apiMessage(400, "Timeout cannot be greater than 1 hours"))
		}, executor.ErrInvalid, "1 hours", 1, false},
		{"quota-429", func(w http.ResponseWriter, _ int) { answerJSON(w, 429, apiMessage(429, quotaText)) }, executor.ErrExhausted, quotaText, 1, false},
		{"rate-429", func(w http.ResponseWriter, _ int) {
			w.Header().Set("Retry-After", "3600")
			answerJSON(w, 429, apiMessage(429, "Rate limit exceeded"))
		}, executor.ErrExhausted, "Rate limit exceeded", 1, false},
		{"503", func(w http.ResponseWriter, _ int) { answerJSON(w, 503, apiMessage(503, "no capacity")) }, executor.ErrUnavailable, "no capacity", attempts, false},
		{"503-html", func(w http.ResponseWriter, _ int) { w.WriteHeader(503); io.WriteString(w, gateway) }, executor.ErrUnavailable, "503 <html>", attempts, false},
		{"503-not-again", func(w http.ResponseWriter, _ int) {
			w.Header().Set("Should-Retry", "false")
			answerJSON(w, 503, apiMessage(503, "no"))
		}, executor.ErrUnavailable, "503 no", 1, false},
		{"500", func(w http.ResponseWriter, _ int) { answerJSON(w, 500, apiMessage(500, "Failed to place sandbox")) }, executor.ErrUnavailable, "Failed to place sandbox", 1, true},
		{"502-text", func(w http.ResponseWriter, _ int) {
			w.WriteHeader(502)
			io.WriteString(w, "Failed to route request to sandbox")
		}, executor.ErrUnavailable, "502 Failed to route", 1, true},
		{"504-html", func(w http.ResponseWriter, _ int) { w.WriteHeader(504); io.WriteString(w, gateway) }, executor.ErrUnavailable, "504 <html>", 1, true},
		{"200-html", func(w http.ResponseWriter, _ int) { w.WriteHeader(200); io.WriteString(w, gateway) }, executor.ErrUnavailable, "not that of the service", 1, true},
		{"redirect", func(w http.ResponseWriter, _ int) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(302)
		}, executor.ErrUnavailable, "302", 1, false},
		{"garbage", func(w http.ResponseWriter, _ int) { w.WriteHeader(201); io.WriteString(w, "\x00\xff{{{") }, executor.ErrUnavailable, "not that of the service", 1, true},
		{"no-id", func(w http.ResponseWriter, _ int) { answerJSON(w, 201, map[string]string{"sandboxID": "../../x"}) }, executor.ErrUnavailable, "not that of the service", 1, true},
		{"cut", func(w http.ResponseWriter, _ int) { panic(http.ErrAbortHandler) }, executor.ErrUnavailable, "EOF", 1, true},
		{"in-progress", func(w http.ResponseWriter, n int) {
			if n < 2 {
				answerJSON(w, 409, map[string]any{"code": 409, "message": "in progress", "error_code": "idempotency_in_progress"})
				return
			}
			answerJSON(w, 400, apiMessage(400, "enough"))
		}, executor.ErrInvalid, "enough", 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := script(t, func(w http.ResponseWriter, r *http.Request, what string, n int) {
				if what == "POST /v2/sandboxes" {
					c.answer(w, n)
					return
				}
				if what == "GET /v2/sandboxes" && c.looked {
					// What was made after all.
					left := []map[string]any{{"sandboxID": "ileft", "templateID": "base", "state": "running", "startedAt": time.Now(), "endAt": time.Now()}}
					answerJSON(w, 200, left)
					return
				}
				w.WriteHeader(http.StatusNoContent)
			})
			x := s.open(t)
			_, err := x.Create(t.Context(), executor.Spec{})
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Ran != executor.RanNo || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.kind, c.text)
			}
			if strings.Contains(fmt.Sprint(err), e2btest.Key) {
				t.Errorf("the key is in %v", err)
			}
			if n := s.count("POST"); n != c.asked {
				t.Errorf("asked %d times for a sandbox, want %d", n, c.asked)
			}
			if err := x.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			want := 0
			if c.looked {
				want = 1
			}
			if n := s.count("DELETE /sandboxes/ileft"); n != want {
				t.Errorf("what was left was killed %d times, want %d", n, want)
			}
		})
	}
}

// The official SDKs drop Retry-After, or never come back: after a rate limit the request is made
// again, and a service that repeats its answers to a key gets another one.
func TestRateLimitIsWaitedFor(t *testing.T) {
	s := script(t, func(w http.ResponseWriter, r *http.Request, what string, n int) {
		switch {
		case n == 0:
			w.Header().Set("Retry-After", "1")
			answerJSON(w, 429, apiMessage(429, "Rate limit exceeded"))
		default:
			answerJSON(w, 400, apiMessage(400, "enough"))
		}
	})
	x := s.open(t)
	defer x.Close()
	start := time.Now()
	if _, err := x.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d < time.Second {
		t.Errorf("asked again after %v", d)
	}
	if len(s.keys) != 2 || s.keys[0] == s.keys[1] || len(s.keys[0]) != 26 {
		t.Errorf("got the keys %q", s.keys)
	}
}

// A sandbox whose caller has left before the service answered is killed when it does.
func TestCreateCancelled(t *testing.T) {
	arrived, release := make(chan bool), make(chan bool)
	s := script(t, func(w http.ResponseWriter, r *http.Request, what string, _ int) {
		if r.Method == http.MethodPost {
			arrived <- true
			<-release
			answerJSON(w, 201, map[string]string{"sandboxID": "ilate", "templateID": "base", "envdVersion": "0.5.7"})
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	x := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := x.Create(ctx, executor.Spec{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if n := s.count("DELETE /sandboxes/ilate"); n == 0 {
		t.Error("the sandbox was not killed")
	}
}

// What is asked for says nothing but what is meant.
func TestCreateAsks(t *testing.T) {
	for _, c := range []struct {
		name string
		spec executor.Spec
		want string
	}{
		{"none", executor.Spec{IdleTTL: 90*time.Second + 1}, `{"allow_internet_access":false,"network":{"allowPublicTraffic":false},"templateID":"base","timeout":91}`},
		{"full", executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, `{"allow_internet_access":true,"network":{"allowPublicTraffic":false},"templateID":"base","timeout":3600}`},
		{"allowlist", executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"*.example.org", "10.0.0.0/8"}}},
			`{"network":{"allowOut":["*.example.org","10.0.0.0/8"],"allowPublicTraffic":false,"denyOut":["0.0.0.0/0"]},"templateID":"base","timeout":3600}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := script(t, func(w http.ResponseWriter, r *http.Request, what string, n int) {
				answerJSON(w, 400, apiMessage(400, "no"))
			})
			x := s.open(t)
			defer x.Close()
			c.spec.Labels = map[string]string{"app": "chat"}
			_, _ = x.Create(t.Context(), c.spec)
			var got map[string]any
			if err := json.Unmarshal(s.body, &got); err != nil {
				t.Fatal(err)
			}
			meta, _ := got["metadata"].(map[string]any)
			if meta["app"] != "chat" || meta[driver.LabelOwner] != "test" || meta[driver.LabelID] == "" {
				t.Errorf("got the metadata %v", meta)
			}
			delete(got, "metadata")
			if text, _ := json.Marshal(got); string(text) != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

// Services of the older generation have other paths, and are asked for nothing twice.
func TestOlderPaths(t *testing.T) {
	s := script(t, func(w http.ResponseWriter, r *http.Request, what string, n int) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2"):
			http.NotFound(w, r)
		case r.Method == http.MethodPost:
			answerJSON(w, 429, apiMessage(429, quotaText))
		default:
			answerJSON(w, 200, []any{})
		}
	})
	x := s.open(t)
	defer x.Close()
	if _, err := x.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrExhausted) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(string(s.body), `"secure":true`) {
		t.Errorf("not secure: %s", s.body)
	}
	for _, err := range x.Sessions(t.Context(), nil) {
		t.Error(err)
	}
	if n := s.count("GET /sandboxes"); n != 1 {
		t.Errorf("listed %d times", n)
	}
}

func TestMetadataIsEscapedTwice(t *testing.T) {
	in := map[string]string{"execbroker.owner": "a b&c=d+e%20/é"}
	values, err := url.ParseQuery(escapeMetadata(in))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for k, v := range values {
		k, kerr := url.QueryUnescape(k)
		v, verr := url.QueryUnescape(v[0])
		if err := errors.Join(kerr, verr); err != nil {
			t.Fatal(err)
		}
		got[k] = v
	}
	if len(got) != 1 || got["execbroker.owner"] != in["execbroker.owner"] {
		t.Errorf("got %q", got)
	}
}

// The four answers with status 502 are told apart.
func TestBadGateways(t *testing.T) {
	for _, c := range []struct {
		body string
		kind error
		gone bool
		port int
	}{
		{`{"sandboxId":"ix","message":"The sandbox was not found","code":502}`, executor.ErrNotFound, true, 0},
		{`{"sandboxId":"ix","message":"The sandbox is running but port is not open","port":49983,"code":502}`, executor.ErrUnavailable, false, 49983},
		{"Failed to route request to sandbox", executor.ErrUnavailable, false, 0},
		{"<html>502 Bad Gateway: The sandbox was not found</html>", executor.ErrUnavailable, false, 0},
		{"", executor.ErrUnavailable, false, 0},
	} {
		e := readError(&http.Response{StatusCode: 502, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(c.body))}, "ix")
		if e.kind() != c.kind || e.gone() != c.gone || e.port != c.port || !strings.Contains(e.Error(), "sandbox ix") {
			t.Errorf("%s: got %v, %v, %v", c.body, e, e.kind(), e.port)
		}
	}
}

// Nobody listens: nothing was sent, so it is tried again, and nothing is looked for.
func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	x, err := Open(t.Context(), driver.Env{Owner: "test"}, emulated("http://"+l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Create(t.Context(), executor.Spec{})
	if !errors.Is(err, executor.ErrUnavailable) || !executor.Retryable(err) {
		t.Errorf("got %v", err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoKey(t *testing.T) {
	x, err := Open(t.Context(), driver.Env{Owner: "test"}, Config{APIKey: driver.Secret{Env: "EXECBROKER_TEST_NO_KEY"}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err = x.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrAuth) || !strings.Contains(err.Error(), "EXECBROKER_TEST_NO_KEY") {
		t.Errorf("got %v", err)
	}
}

// A sandbox that is not what was asked for is refused, and killed.
func TestRefusedSandboxes(t *testing.T) {
	token := "t"
	for _, c := range []struct {
		name string
		s    api.Sandbox
		want string
	}{
		{"old-daemon", api.Sandbox{EnvdVersion: "0.1.5", EnvdAccessToken: &token, TrafficAccessToken: &token}, "envd>=0.2.0"},
		{"no-token", api.Sandbox{EnvdVersion: "0.5.7", TrafficAccessToken: &token}, "secure sandboxes"},
		{"public", api.Sandbox{EnvdVersion: "0.5.7", EnvdAccessToken: &token}, "network.allowPublicTraffic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.SandboxID = "iodd"
			s := script(t, func(w http.ResponseWriter, r *http.Request, what string, n int) {
				if r.Method == http.MethodPost {
					answerJSON(w, 201, c.s)
					return
				}
				w.WriteHeader(http.StatusNoContent)
			})
			x := s.open(t)
			defer x.Close()
			_, err := x.Create(t.Context(), executor.Spec{})
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || len(e.Missing) != 1 || e.Missing[0] != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if n := s.count("DELETE /sandboxes/iodd"); n != 1 {
				t.Errorf("killed %d times", n)
			}
		})
	}
}
