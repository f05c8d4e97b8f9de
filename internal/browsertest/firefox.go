package browsertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Firefox is a page in Firefox, controlled with WebDriver BiDi.
type Firefox struct {
	testing.TB
	conn    *websocket.Conn
	id      int
	context string // of the page
	close   func() // ends the browser
}

var _ Browser = (*Firefox)(nil)

// preferences make every name lead to the server of an attacker, and stop what Firefox asks for
// itself.
const preferences = `user_pref("network.dns.forceResolve", "%s");
user_pref("network.trr.mode", 5);
user_pref("network.dns.disablePrefetch", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("app.update.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
`

var listens = regexp.MustCompile(`WebDriver BiDi listening on (ws://\S+)`)

// OpenFirefox opens a page in Firefox, in which names of the attacker lead to its server. The page
// is on an address, not on a name.
func (a *Attacker) OpenFirefox(url string) *Firefox {
	a.Helper()
	file, err := exec.LookPath("firefox-esr")
	if err != nil {
		a.Skip("needs firefox-esr; make exhaustive installs it")
	}
	dir := a.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "user.js"), fmt.Appendf(nil, preferences, address), 0o600); err != nil {
		a.Fatal(err)
	}
	cmd := exec.CommandContext(a.Context(), file, "--headless", "--no-remote", "--profile", dir, "--remote-debugging-port", "0", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+a.TempDir())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // with its processes
	cmd.WaitDelay = 10 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		a.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		a.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	var said strings.Builder
	var at string
	for at == "" && err == nil {
		var line string
		line, err = lines.ReadString('\n')
		said.WriteString(line)
		if m := listens.FindStringSubmatch(line); m != nil {
			at = m[1]
		}
	}
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	f := &Firefox{TB: a.TB}
	f.close = sync.OnceFunc(func() {
		if f.conn != nil {
			f.id++
			_ = f.conn.WriteJSON(map[string]any{"id": f.id, "method": "browser.close", "params": map[string]any{}})
		}
		drained.Wait()
		_ = cmd.Wait() // however it ends
		if f.conn != nil {
			f.conn.Close()
		}
	})
	a.Cleanup(f.close)
	if at == "" {
		a.Fatalf("firefox-esr ends: %v: %s", err, said.String())
	}
	if f.conn, _, err = websocket.DefaultDialer.DialContext(a.Context(), at+"/session", nil); err != nil { //nolint:bodyclose // the connection has it
		a.Fatal(err)
	}
	if err := f.conn.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		a.Fatal(err)
	}
	f.send("session.new", map[string]any{"capabilities": map[string]any{}}, &struct{}{})
	var tree struct{ Contexts []struct{ Context string } }
	f.send("browsingContext.getTree", map[string]any{}, &tree)
	f.context = tree.Contexts[0].Context
	f.send("browsingContext.navigate", map[string]any{"context": f.context, "url": url, "wait": "complete"}, &struct{}{})
	return f
}

// send sends a command and waits for its answer.
func (f *Firefox) send(method string, params, result any) {
	f.Helper()
	f.id++
	if err := f.conn.WriteJSON(map[string]any{"id": f.id, "method": method, "params": params}); err != nil {
		f.Fatal(err)
	}
	for {
		var answer struct {
			ID      int
			Type    string
			Result  json.RawMessage
			Message string
		}
		if err := f.conn.ReadJSON(&answer); err != nil {
			f.Fatalf("%s: %v", method, err)
		}
		if answer.ID != f.id {
			continue // an event
		}
		if answer.Type != "success" {
			f.Fatalf("%s: %s", method, answer.Message)
		}
		if err := json.Unmarshal(answer.Result, result); err != nil {
			f.Fatal(err)
		}
		return
	}
}

// Eval implements Browser.
func (f *Firefox) Eval(expression string) string {
	f.Helper()
	var r struct {
		Type             string
		Result           struct{ Value any }
		ExceptionDetails struct{ Text string }
	}
	f.send("script.evaluate", map[string]any{"expression": expression, "target": map[string]string{"context": f.context}, "awaitPromise": true}, &r)
	if r.Type != "success" {
		f.Fatalf("%.300s: %s", expression, r.ExceptionDetails.Text)
	}
	return fmt.Sprint(r.Result.Value)
}

// asked implements Browser. Firefox tells nobody what it asks a DNS server for: only connections
// count.
func (f *Firefox) asked() []string {
	f.close()
	return nil
}
