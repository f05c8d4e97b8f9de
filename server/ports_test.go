package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// listening returns a session with a server in it, and the path of its port.
func (w world) listening(fields string) (session, port string) {
	w.Helper()
	session = w.session(fields)
	code := strings.ReplaceAll(fake.Programs(executor.Python)["serve"], "{{address}}", `"127.0.0.1"`)
	q, err := json.Marshal(RunRequest{Language: executor.Python, Code: code})
	if err != nil {
		w.Fatal(err)
	}
	r := decode[Result](w.T, w.want(http.StatusOK, "POST", session+"/run", string(q)))
	return session, session + "/ports/" + strings.TrimSpace(string(r.Stdout))
}

// upgrade requests a connection as a program without a library does, and returns it with the
// server's response.
func (w world) upgrade(path string) (net.Conn, *bufio.Reader, *http.Response) {
	w.Helper()
	c, err := new(net.Dialer).DialContext(w.Context(), "tcp", w.h.Listener.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(forever)); err != nil {
		w.Fatal(err)
	}
	// The first bytes may follow the request immediately.
	_, err = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+alice+"\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\necho\nfirst ")
	if err != nil {
		w.Fatal(err)
	}
	b := bufio.NewReader(c)
	res, err := http.ReadResponse(b, nil)
	if err != nil {
		w.Fatal(err)
	}
	return c, b, res
}

// Bytes go in both directions, and each side can close its direction separately.
func TestPort(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	_, port := w.listening(`{"ports": true}`)
	c, b, res := w.upgrade(port)
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "tcp" || res.Header.Get("X-Request-Id") == "" {
		t.Fatalf("got %+v", res)
	}
	if _, err := io.WriteString(c, "second"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); string(got) != "first secondend" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// An unauthorized request does not reach a port, and an error is not taken for a connection.
func TestPortRefused(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	session, port := w.listening(`{"ports": true}`)
	up := []string{"Connection", "Upgrade", "Upgrade", "tcp"}
	with := func(more ...string) []string { return append(more, up...) }
	w.want(http.StatusUpgradeRequired, "POST", port, "")
	w.want(http.StatusUpgradeRequired, "POST", port, "", "Connection", "Upgrade", "Upgrade", "websocket")
	w.want(http.StatusUnauthorized, "POST", port, "", with("Authorization", "")...)
	w.want(http.StatusNotFound, "POST", port, "", with("Authorization", "Bearer "+bob)...)
	w.want(http.StatusForbidden, "POST", port, "", with("Sec-Fetch-Site", "cross-site")...)
	w.want(http.StatusMethodNotAllowed, "PUT", port, "", up...)
	w.want(http.StatusForbidden, "POST", session+"/ports/7", "", up...) // a port of the sandbox itself
	has(t, w.want(http.StatusBadGateway, "POST", session+"/ports/9", "", up...), `"kind":"no-server"`, `"ran":"no"`)
	for _, bad := range []string{"0", "65536", "-1", "x", "99999999999999999999"} {
		w.want(http.StatusBadRequest, "POST", session+"/ports/"+bad, "", up...)
	}
	_, closed := w.listening("{}")
	w.want(http.StatusNotImplemented, "POST", closed, "", up...)
	without := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeaturePorts)}, Config{})
	without.want(http.StatusNotImplemented, "POST", "/v1/sessions", `{"ports": true}`)
}

// A connection ends with its session, whoever ends the session, and when the server in the sandbox
// closes it.
func TestPortEnds(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	for name, end := range map[string]func(session string){
		"deleted": func(session string) { w.want(http.StatusNoContent, "DELETE", session, "") },
		"idle":    func(string) {}, // an open connection does not count as use
	} {
		session, port := w.listening(`{"ports": true, "idle_seconds": 2}`)
		_, b, res := w.upgrade(port)
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: got %+v", name, res)
		}
		end(session)
		if _, err := io.Copy(io.Discard, b); timedOut(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, port := w.listening(`{"ports": true}`)
	_, b, _ := w.upgrade(port)
	if err := w.s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, b); timedOut(err) {
		t.Errorf("closed: got %v", err)
	}
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// What a client sends restarts the idle time of its session.
func TestPortTouches(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	session, port := w.listening(`{"ports": true}`)
	c, b, _ := w.upgrade(port)
	if _, err := io.ReadFull(b, make([]byte, len("first "))); err != nil {
		t.Fatal(err)
	}
	w.s.mu.Lock()
	timer := w.s.sessions[strings.TrimPrefix(session, "/v1/sessions/")].timer
	w.s.mu.Unlock()
	timer.Stop()
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if !timer.Stop() {
		t.Error("the idle time did not begin")
	}
	timer.Reset(time.Hour)
}
