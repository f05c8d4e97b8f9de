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

// A connection goes on after a sandbox has ended in the middle of a request, and its later requests are not cut short.
func TestConnectionOutlivesSandbox(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	c := d.lasting()
	start := `{"process": {"cmd": "print(1)\nforever()"}}`
	for range 50 {
		res := c.send(d, "/v2/sandboxes", 0, "application/json", `{"templateID": "base"}`)
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusCreated {
			t.Fatalf("got %s %s, %v", res.Status, text, err)
		}
		if err := json.Unmarshal(text, &d.box); err != nil {
			t.Fatal(err)
		}
		res = c.send(d, "/process.Process/Start", envdPort, "application/connect+json", envelope(0, uint32(len(start)), start))
		if _, err := io.ReadFull(res.Body, make([]byte, 5)); err != nil { // it has begun
			t.Fatal(err)
		}
		d.want(http.StatusNoContent, "DELETE", "/sandboxes/"+d.box.SandboxID, "")
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}
}
