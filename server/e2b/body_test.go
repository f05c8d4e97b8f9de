package e2b

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/internal/fake"
)

// lasting is a connection that has one request after the other.
type lasting struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (d daemon) lasting() lasting {
	d.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		d.Fatal(err)
	}
	return lasting{d.T, c, bufio.NewReader(c)}
}

// send sends a request and returns the answer when it begins.
func (c lasting) send(d daemon, target string, port int, typ, body string) *http.Response {
	c.t.Helper()
	head := strings.Replace(d.head("POST", target, port, "Content-Type: "+typ, fmt.Sprintf("Content-Length: %d", len(body))), "Connection: close\r\n", "", 1)
	if _, err := io.WriteString(c, head+body); err != nil {
		c.t.Fatal(err)
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// A connection goes on after a sandbox has ended in the middle of a request, and its later requests
// are not cut short.
func TestConnectionOutlivesSandbox(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	c := d.lasting()
	defer d.b.Hold(fake.OpFiles)()
	for range 50 {
		res := c.send(d, "/v2/sandboxes", 0, "application/json", `{"templateID": "base"}`)
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusCreated {
			t.Fatalf("got %s %s, %v", res.Status, text, err)
		}
		if err := json.Unmarshal(text, &d.box); err != nil {
			t.Fatal(err)
		}
		before, killed := d.b.Calls(fake.OpFiles), make(chan int)
		go func() {
			for d.b.Calls(fake.OpFiles) == before { // it has not begun
				time.Sleep(time.Millisecond)
			}
			killed <- d.do("DELETE", "/sandboxes/"+d.box.SandboxID, "").Code
		}()
		res = c.send(d, "/filesystem.Filesystem/Stat", envdPort, "application/json", `{"path": "x"}`)
		if text, err = io.ReadAll(res.Body); err != nil || !strings.Contains(string(text), "the sandbox is gone") {
			t.Fatalf("got %s %s, %v", res.Status, text, err)
		}
		if status := <-killed; status != http.StatusNoContent {
			t.Fatalf("got %d", status)
		}
	}
}
