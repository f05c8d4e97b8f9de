package live

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The ports of E2B's daemon and of its code interpreter, and one where nothing listens.
const (
	envdPort   = 49983
	closedPort = 9
)

// data sends a request into a sandbox, past the control plane.
func (s *site) data(ctx context.Context, id string, port int, method, path string, body []byte, headers ...string) (*answer, error) {
	base := s.svc.texts["sandbox_url"]
	if base == "" {
		base = fmt.Sprintf("https://%d-%s.%s", port, id, s.svc.texts["domain"])
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", strconv.Itoa(port))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.proxy.next.RoundTrip(r) //nolint:bodyclose // readBody closes it
	if err != nil {
		return nil, err
	}
	got, err := readBody(res.Body)
	if err != nil && len(got) == 0 {
		return nil, err
	}
	s.rec.add(s.trap, r, body, res, got)
	return &answer{res.StatusCode, res.Header, got, s.rec.scrub}, nil
}

// envd sends a request to the daemon of the sandbox that traps share, with its token.
func (s *site) envd(ctx context.Context, method, path string, body []byte, headers ...string) (*answer, error) {
	id, err := s.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	way, err := s.connect(ctx, 60)
	if err != nil {
		return nil, err
	}
	return s.data(ctx, id, envdPort, method, path, body, append([]string{"X-Access-Token", way.EnvdAccessToken}, headers...)...)
}

// way is how a sandbox is reached.
type way struct{ EnvdAccessToken, TrafficAccessToken string }

// connect asks how to reach the sandbox that traps share, and for a life of so many seconds at
// least.
func (s *site) connect(ctx context.Context, seconds int) (found way, err error) {
	id, err := s.sandbox(ctx)
	if err != nil {
		return found, err
	}
	for _, version := range []string{"/v2", ""} {
		if err = s.decode(ctx, http.MethodPost, version+"/sandboxes/"+id+"/connect", map[string]any{"timeout": seconds}, &found); err == nil {
			break
		}
	}
	return found, err
}

// ends returns when the service will end the sandbox.
func (s *site) ends(ctx context.Context) (at time.Time, err error) {
	id, err := s.sandbox(ctx)
	if err != nil {
		return at, err
	}
	var d struct{ EndAt time.Time }
	err = s.decode(ctx, http.MethodGet, "/sandboxes/"+id, nil, &d)
	return d.EndAt, err
}

// stream makes the request of a stream of Connect.
func stream(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...), err
}

// start begins a process and returns what the daemon said first.
func (s *site) start(ctx context.Context, request map[string]any) (*answer, error) {
	body, err := stream(request)
	if err != nil {
		return nil, err
	}
	return s.envd(ctx, http.MethodPost, "/process.Process/Start", body, "Content-Type", "application/connect+json", "Connect-Protocol-Version", "1")
}

// e2bTraps are the facts about E2B's protocols that the adapter and the server rely on.
var e2bTraps = []trap{
	without("key-wrong", "a key that is none: 401", request{http.MethodGet, "/v2/sandboxes", nil}, http.StatusUnauthorized, "", "X-Api-Key", "e2b_00000000"),
	without("sandbox-never-seen", "a sandbox that never was: 404", request{http.MethodGet, "/sandboxes/i00000000000000000000", nil}, http.StatusNotFound, ""),
	without("kill-never-seen", "to kill a sandbox that never was: 404", request{http.MethodDelete, "/sandboxes/i00000000000000000000", nil}, http.StatusNotFound, ""),
	without("timeout-zero", "a create with a timeout of 0: 400", request{http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 0}}, http.StatusBadRequest, ""),
	without("template-unknown", "a create of a template that is not there: 404", request{http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "execbroker-no-such-template", "timeout": 15}}, http.StatusNotFound, ""),
	without("idempotency-key", "an Idempotency-Key in upper case: 400", request{http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 15}}, http.StatusBadRequest, "", "Idempotency-Key", "UPPER"),
	{name: "connect-only-extends", expect: "a connect with a shorter timeout does not shorten a life", look: func(ctx context.Context, s *site) (string, bool, error) {
		before, err := s.ends(ctx)
		if err != nil {
			return "", false, err
		}
		if _, err := s.connect(ctx, 1); err != nil {
			return "", false, err
		}
		after, err := s.ends(ctx)
		return fmt.Sprintf("the end is %v later", after.Sub(before).Round(time.Second)), !after.Before(before.Add(-time.Second)), err
	}},
	{name: "envd-without-token", expect: "the daemon without its token: 401", look: func(ctx context.Context, s *site) (string, bool, error) {
		id, err := s.sandbox(ctx)
		if err != nil {
			return "", false, err
		}
		a, err := s.data(ctx, id, envdPort, http.MethodPost, "/process.Process/List", []byte("{}"), "Content-Type", "application/json")
		return a.seen(err, http.StatusUnauthorized, "")
	}},
	{name: "closed-port", expect: "a port where nothing listens: 502 that names it", look: func(ctx context.Context, s *site) (string, bool, error) {
		id, err := s.sandbox(ctx)
		if err != nil {
			return "", false, err
		}
		way, err := s.connect(ctx, 60)
		if err != nil {
			return "", false, err
		}
		a, err := s.data(ctx, id, closedPort, http.MethodGet, "/", nil, "E2b-Traffic-Access-Token", way.TrafficAccessToken)
		return a.seen(err, http.StatusBadGateway, "port")
	}},
	{name: "unknown-sandbox-502", expect: "a sandbox that is gone, at its own address: 502, not found", look: func(ctx context.Context, s *site) (string, bool, error) {
		a, err := s.data(ctx, "i00000000000000000000", envdPort, http.MethodGet, "/health", nil)
		return a.seen(err, http.StatusBadGateway, "not found")
	}},
	{name: "error-in-stream", expect: "a command in a directory that is not there: status 200, and the error in the last frame", look: func(ctx context.Context, s *site) (string, bool, error) {
		a, err := s.start(ctx, map[string]any{"process": map[string]any{"cmd": "/bin/true", "cwd": "/nowhere"}})
		return a.seen(err, http.StatusOK, "invalid_argument")
	}},
	{name: "late-end", expect: "the end of a command waits for what it left running with its output", look: func(ctx context.Context, s *site) (string, bool, error) {
		begin := time.Now()
		a, err := s.start(ctx, map[string]any{"process": map[string]any{"cmd": "/bin/sh", "args": []string{"-c", "(sleep 2; echo late) & exit 0"}}, "stdin": false})
		if err != nil {
			return "", false, err
		}
		return fmt.Sprintf("%d after %v", a.status, time.Since(begin).Round(100*time.Millisecond)), time.Since(begin) >= 2*time.Second, nil
	}},
	{name: "upload-media-type", expect: "the answer to an upload is JSON called text/plain", look: func(ctx context.Context, s *site) (string, bool, error) {
		a, err := s.envd(ctx, http.MethodPost, "/files?path=/tmp/execbroker-live", []byte("x"), "Content-Type", "application/octet-stream")
		if err != nil {
			return "", false, err
		}
		media := a.header.Get("Content-Type")
		return fmt.Sprintf("%d %s", a.status, media), a.status == http.StatusOK && strings.HasPrefix(media, "text/plain"), nil
	}},
	{name: "download-length", expect: "a download that does not ask for gzip has its length", look: func(ctx context.Context, s *site) (string, bool, error) {
		a, err := s.envd(ctx, http.MethodGet, "/files?path=/etc/passwd", nil, "Accept-Encoding", "identity")
		if err != nil {
			return "", false, err
		}
		n := a.header.Get("Content-Length")
		return fmt.Sprintf("%d, Content-Length %s of %d", a.status, n, len(a.body)), n == strconv.Itoa(len(a.body)), nil
	}},
	{name: "remove-missing", expect: "to remove a file that is not there is no error", look: func(ctx context.Context, s *site) (string, bool, error) {
		a, err := s.envd(ctx, http.MethodPost, "/filesystem.Filesystem/Remove", []byte(`{"path":"/tmp/execbroker-nothing"}`), "Content-Type", "application/json")
		return a.seen(err, http.StatusOK, "")
	}},
}
