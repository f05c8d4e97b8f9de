// Package browsertest drives browsers in tests of pages, and counts what pages ask the network for.
package browsertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Page is a page in Chromium, controlled over a pair of pipes with the protocol of its developer
// tools.
type Page struct {
	testing.TB
	in      *os.File
	out     *bufio.Reader
	id      int
	session string // session of the page
	close   func() // ends the browser
	log     string // file of what the network was asked for
}

// Open opens a page in Chromium. No name of a host has an address there.
func Open(t testing.TB, url string) *Page {
	t.Helper()
	return open(t, url, "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
}

// open opens a page, with rules for the addresses of names.
func open(t testing.TB, url, names string) *Page {
	t.Helper()
	file, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs Chromium; go run ./internal/ci prepare installs it")
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "net-log.json")
	cmd := exec.CommandContext(t.Context(), file, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--proxy-server=direct://", "--remote-debugging-pipe",
		"--host-resolver-rules="+names, "--log-net-log="+log, "--user-data-dir="+filepath.Join(dir, "profile"), "about:blank")
	cmd.ExtraFiles = []*os.File{inR, outW} // descriptors 3 and 4, which Chromium expects
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	p := &Page{TB: t, in: inW, out: bufio.NewReaderSize(outR, 1<<20), log: log}
	if err := outR.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	p.close = sync.OnceFunc(func() {
		fmt.Fprintf(inW, `{"id":%d,"method":"Browser.close"}`+"\x00", p.id+1)
		_ = cmd.Wait() // however it ends
		inW.Close()
		outR.Close()
	})
	t.Cleanup(func() {
		p.close()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	var target struct{ TargetID string }
	p.Send("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.Send("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	p.Send("Page.navigate", map[string]any{"url": url}, &struct{}{})
	return p
}

// asked implements Browser by the log that Chromium ends with. It has the addresses that names were
// mapped to, and a question for each.
func (p *Page) asked() (questions []string) {
	p.Helper()
	p.close()
	file, err := os.Open(p.log)
	if err != nil {
		p.Fatal(err)
	}
	defer file.Close()
	kind := -1 // of events
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		var begin struct {
			Constants struct {
				LogEventTypes map[string]int
			}
		}
		var event struct {
			Type   int
			Params struct{ Host string }
		}
		line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
		if kind < 0 && json.Unmarshal(append(slices.Clone(line), '}'), &begin) == nil {
			kind = begin.Constants.LogEventTypes["HOST_RESOLVER_MANAGER_REQUEST"]
		}
		if json.Unmarshal(line, &event) == nil && event.Type == kind && strings.Contains(event.Params.Host, address) {
			questions = append(questions, event.Params.Host)
		}
		if err == io.EOF && kind > 0 {
			return questions
		}
		if err != nil {
			p.Fatalf("%s: %v, and the number of the event is %d", p.log, err, kind)
		}
	}
}

// Send sends a command and waits for its answer.
func (p *Page) Send(method string, params, result any) {
	p.Helper()
	if refused := p.send(method, params, result); refused != nil {
		p.Fatalf("%s: %s", method, refused)
	}
}

// send is Send that returns the error which the browser answers.
func (p *Page) send(method string, params, result any) (refused json.RawMessage) {
	p.Helper()
	p.id++
	m := map[string]any{"id": p.id, "method": method, "params": params}
	if p.session != "" {
		m["sessionId"] = p.session
	}
	data, err := json.Marshal(m)
	if err != nil {
		p.Fatal(err)
	}
	if _, err := p.in.Write(append(data, 0)); err != nil {
		p.Fatal(err)
	}
	for {
		text, err := p.out.ReadBytes(0)
		if err != nil {
			p.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &answer); err != nil {
			p.Fatal(err)
		}
		if answer.ID != p.id {
			continue // an event
		}
		if answer.Error != nil {
			return answer.Error
		}
		if err := json.Unmarshal(answer.Result, result); err != nil {
			p.Fatal(err)
		}
		return nil
	}
}

// Eval returns the value of an expression as text.
func (p *Page) Eval(expression string) string {
	p.Helper()
	value, refused := p.eval(expression)
	if refused != nil {
		p.Fatalf("%s: %s", expression, refused)
	}
	return value
}

func (p *Page) eval(expression string) (value string, refused json.RawMessage) {
	p.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	refused = p.send("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		p.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value), refused
}

// Until waits until an expression is true. Elements that are not there yet are no error, and
// neither is a page that is being left: the browser refuses to look at it.
func (p *Page) Until(expression string) {
	p.Helper()
	now := "(() => { try { return Boolean(" + expression + ") } catch (e) { if (e instanceof TypeError) return false; throw e } })()"
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) { // a poll
		value, refused := p.eval(now)
		if refused == nil && value == "true" {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("it does not become true: %s\n%s", expression, p.Eval("document.documentElement.outerHTML"))
		}
	}
}

// Screenshot returns a picture of what is visible, in PNG.
func (p *Page) Screenshot() []byte {
	p.Helper()
	var r struct{ Data []byte }
	p.Send("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	return r.Data
}

// The modifiers of Key.
const (
	Control = 2
	Shift   = 8
)

// keys are the codes and the text of keys.
var keys = map[string]struct {
	code int
	text string
}{"Enter": {13, "\r"}, "Tab": {9, ""}, "Escape": {27, ""}, "ArrowRight": {39, ""}, "ArrowLeft": {37, ""}, "a": {65, ""}}

// Key presses a key, with modifiers.
func (p *Page) Key(name string, modifiers int) {
	p.Helper()
	k := keys[name]
	e := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": k.code, "modifiers": modifiers}
	if k.text != "" {
		e["text"] = k.text
	}
	p.Send("Input.dispatchKeyEvent", e, &struct{}{})
	p.Send("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": name, "code": name, "windowsVirtualKeyCode": k.code, "modifiers": modifiers}, &struct{}{})
}

// Type inserts text where the focus is.
func (p *Page) Type(text string) {
	p.Helper()
	p.Send("Input.insertText", map[string]any{"text": text}, &struct{}{})
}

// Click presses and releases the left button of the mouse, at a position in the window.
func (p *Page) Click(x, y float64) {
	p.Helper()
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.Send("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, &struct{}{})
	}
}

// Look sets the size of the window and the scheme of colours, "light" or "dark".
func (p *Page) Look(width, height int, scheme string) {
	p.Helper()
	p.Send("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, &struct{}{})
	p.Send("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, &struct{}{})
	p.Eval("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn))).then(() => true)")
}

// Settle waits until what was begun before has had its time: what a page loads has begun to load.
func (p *Page) Settle() {
	p.Helper()
	p.Until("document.readyState === 'complete'")
	p.Eval("new Promise(rested => setTimeout(rested, 1000)).then(() => true)")
}
