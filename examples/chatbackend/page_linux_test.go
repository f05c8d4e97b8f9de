package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is Chromium, controlled over a pair of pipes with the protocol of its developer tools.
type browser struct {
	*testing.T
	in      *os.File
	out     *bufio.Reader
	id      int
	session string // session of the page
}

// browse opens a page.
func browse(t *testing.T, url string) *browser {
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
	cmd := exec.CommandContext(t.Context(), file, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--proxy-server=direct://", "--remote-debugging-pipe",
		"--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "about:blank")
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
	b := &browser{T: t, in: inW, out: bufio.NewReaderSize(outR, 1<<20)}
	if err := outR.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fmt.Fprintf(inW, `{"id":%d,"method":"Browser.close"}`+"\x00", b.id+1)
		_ = cmd.Wait() // however it ends
		inW.Close()
		outR.Close()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	var target struct{ TargetID string }
	b.send("Target.createTarget", map[string]any{"url": url}, &target)
	var attached struct{ SessionID string }
	b.send("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	return b
}

// send sends a command and waits for its answer.
func (b *browser) send(method string, params, result any) {
	b.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	data, err := json.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.in.Write(append(data, 0)); err != nil {
		b.Fatal(err)
	}
	for {
		text, err := b.out.ReadBytes(0)
		if err != nil {
			b.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &answer); err != nil {
			b.Fatal(err)
		}
		if answer.ID != b.id {
			continue // an event
		}
		if answer.Error != nil {
			b.Fatalf("%s: %s", method, answer.Error)
		}
		if err := json.Unmarshal(answer.Result, result); err != nil {
			b.Fatal(err)
		}
		return
	}
}

// eval returns the value of an expression as text.
func (b *browser) eval(expression string) string {
	b.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.send("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		b.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.Helper()
	for end := time.Now().Add(2 * time.Minute); b.eval("Boolean("+expression+")") != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("it does not become true: %s\n%s", expression, b.eval("document.documentElement.outerHTML"))
		}
	}
}

// A user uploads a file, sends two messages, and sees output, an error, a chart and a file.
func TestPage(t *testing.T) {
	url, _ := start(t, parse(t, "pyodide.yaml"), append(script(), turn{wants: "hostile", text: "<img src=x onerror=alert(1)><script>document.title='broken'</script>"}))
	b := browse(t, url)
	b.until("document.getElementById('send')")
	say := func(text string) {
		t.Helper()
		b.eval(fmt.Sprintf("document.getElementById('text').value = %q, document.getElementById('send').click()", text))
		b.until("!document.getElementById('send').disabled")
	}
	b.eval(`{ const d = new DataTransfer(); d.items.add(new File(["1\n2\n3\n"], "in.csv")); document.getElementById("file").files = d.files }`)
	say("How much is it?")
	if got, want := b.eval("document.getElementById('log').innerText.replace(/\\s+/g, ' ')"), "How much is it? Let me add. total = sum(int(l) for l in open('in.csv')) print('total', total) total 6 It is 6."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	say("And a chart?")
	b.until("document.images.length === 1 && document.images[0].complete")
	if got, want := b.eval("document.images[0].naturalWidth + 'x' + document.images[0].naturalHeight"), "40x30"; got != want {
		t.Errorf("got an image of %s, want %s", got, want)
	}
	if got, want := b.eval("[...document.querySelectorAll('.code')].map(e => e.dataset.try).join()"), "1,1,2"; got != want {
		t.Errorf("got tries %s, want %s", got, want)
	}
	if got := b.eval("document.querySelector('.error').textContent"); !strings.Contains(got, "NameError") {
		t.Errorf("got error %q", got)
	}
	if got, want := b.eval("fetch(document.querySelector('a[download]').href).then(r => r.text())"), "total 6"; got != want {
		t.Errorf("got the file %q, want %q", got, want)
	}
	// Text of a model is shown as text, even if it looks like HTML.
	say("hostile")
	if got, want := b.eval("document.title + document.images.length + document.scripts.length"), "Chat with a sandbox11"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
