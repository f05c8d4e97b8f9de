package e2b

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/waittest"
)

// hosted is a server with sandboxes below a domain, and a sandbox in which a server listens.
type hosted struct {
	world
	sandboxAnswer
	at   string // the address of the server
	port string
}

func host(t *testing.T, ports Ports, fields string) hosted {
	t.Helper()
	h := hosted{world: newWorld(t, fake.Options{}, Config{Domain: "boxes.test", Ports: ports})}
	h.sandboxAnswer = h.create(fields)
	code := fake.Programs(executor.Python)["serve"]
	res, err := h.s.lookup(h.SandboxID).session.Run(t.Context(), executor.Request{Language: executor.Python, Code: strings.ReplaceAll(code, "{{address}}", `"127.0.0.1"`)}, nil)
	if err != nil || res.Status != executor.StatusOK {
		t.Fatalf("got %+v, %v", res, err)
	}
	h.port = strings.TrimSpace(string(res.Stdout))
	srv := httptest.NewServer(h.s)
	t.Cleanup(srv.Close)
	h.at = srv.Listener.Addr().String()
	return h
}

// ask sends a request to a port of the sandbox by its host name. Headers are names and values in
// turn.
func (h hosted) ask(method, path, body string, headers ...string) (*http.Response, string, error) {
	h.Helper()
	r, err := http.NewRequestWithContext(h.Context(), method, "http://"+h.at+path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	r.Host = h.port + "-" + h.SandboxID + ".boxes.test"
	if h.TrafficAccessToken != nil {
		r.Header.Set("E2b-Traffic-Access-Token", *h.TrafficAccessToken)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res, string(got), err
}

// What a server in the sandbox gets and answers, and what neither side gets to know.
func TestPorts(t *testing.T) {
	h := host(t, PortsPrivate, "")
	if h.TrafficAccessToken == nil {
		t.Fatal("there is no token")
	}
	res, got, err := h.ask("POST", "/a%2Fb?q=1", "content", "X-API-Key", alice, "X-Access-Token", "t", "Authorization", "Bearer "+alice, "E2b-Sandbox-Id", "x",
		"E2b-Sandbox-Port", "1", "Cookie", "own=1", "Origin", "http://"+h.port+"-"+h.SandboxID+".boxes.test", "X-Forwarded-For", "10.1.2.3")
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("got %v %q, %v", res, got, err)
	}
	for _, want := range []string{"POST /a%2Fb?q=1 " + h.port + "-" + h.SandboxID + ".boxes.test\n", "Cookie: own=1\r\n", "\ncontent"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	for _, secret := range []string{alice, *h.TrafficAccessToken, "X-Access-Token", "E2b-", "10.1.2.3"} {
		if strings.Contains(strings.ToLower(got), strings.ToLower(secret)) {
			t.Errorf("the server in the sandbox was told %q: %q", secret, got)
		}
	}
	if _, got, _ := h.ask("GET", "/", "", "Authorization", "Bearer of-the-app"); !strings.Contains(got, "Bearer of-the-app") {
		t.Errorf("got %q without the credential of the server's own", got)
	}
	res, _, err = h.ask("GET", "/cookies", "")
	if want := []string{"a=1; Path=/", "b=2"}; err != nil || strings.Join(res.Header["Set-Cookie"], "|") != strings.Join(want, "|") {
		t.Errorf("got cookies %q, %v, want %q: they are of no other host", res.Header["Set-Cookie"], err, want)
	}
	for name := range res.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("got %s", name)
		}
	}
}

// Nothing of a sandbox is answered to who may not see it, nor at another name than its own.
func TestPortsRefused(t *testing.T) {
	h := host(t, PortsPrivate, "")
	own := func(port string) string { return port + "-" + h.SandboxID + ".boxes.test" }
	byHeaders := []string{"E2b-Sandbox-Id", h.SandboxID, "E2b-Sandbox-Port", h.port}
	for name, c := range map[string]struct {
		status  int
		headers []string
	}{
		"no-token":         {403, []string{"E2b-Traffic-Access-Token", ""}},
		"wrong-token":      {403, []string{"E2b-Traffic-Access-Token", "x"}},
		"key-as-token":     {403, []string{"E2b-Traffic-Access-Token", alice}},
		"name-of-the-api":  {502, append([]string{"Host", "api.boxes.test"}, byHeaders...)},
		"loopback":         {502, append([]string{"Host", "localhost"}, byHeaders...)},
		"closed-port":      {502, []string{"Host", own("8080")}},
		"own-port":         {502, []string{"Host", own("7")}},
		"zero":             {502, []string{"Host", own("0")}},
		"too-large":        {400, []string{"Host", own("65536")}},
		"much-too-large":   {421, []string{"Host", own("4294967376")}},
		"name":             {421, []string{"Host", own("localhost")}},
		"address":          {421, []string{"Host", "127.0.0.1-80-" + h.SandboxID + ".boxes.test"}},
		"other-sandbox":    {502, []string{"Host", h.port + "-inothing.boxes.test"}},
		"other-domain":     {421, []string{"Host", h.port + "-" + h.SandboxID + ".evil.test"}},
		"page-of-a-friend": {403, []string{"Sec-Fetch-Site", "cross-site"}},
	} {
		if res, got, err := h.ask("POST", "/", "x", c.headers...); err != nil || res.StatusCode != c.status || strings.Contains(got, "POST /") {
			t.Errorf("%s: got %v %q, %v, want %d", name, res, got, err, c.status)
		}
	}
	h.want(204, "DELETE", "/sandboxes/"+h.SandboxID, "")
	if res, got, err := h.ask("GET", "/", ""); err != nil || res.StatusCode != 502 || !strings.Contains(got, "not found") {
		t.Errorf("got %v %q, %v of a sandbox that was killed", res, got, err)
	}
}

// A sandbox is open to everybody only if its client and the operator want that.
func TestPortsPublic(t *testing.T) {
	for name, c := range map[string]struct {
		ports  Ports
		fields string
		token  bool
	}{
		"private-default": {PortsPrivate, "", true},
		"private-asked":   {PortsPrivate, `"network": {"allowPublicTraffic": true}`, true},
		"public-default":  {PortsPublic, "", false},
		"public-refused":  {PortsPublic, `"network": {"allowPublicTraffic": false}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, c.ports, c.fields)
			if got := h.TrafficAccessToken != nil; got != c.token {
				t.Errorf("got a token: %v", got)
			}
			want := 200
			if c.token {
				want = 403
			}
			if res, _, err := h.ask("GET", "/", "", "E2b-Traffic-Access-Token", ""); err != nil || res.StatusCode != want {
				t.Errorf("got %v, %v without a token, want %d", res, err, want)
			}
			if res, _, err := h.ask("GET", "/", ""); err != nil || res.StatusCode != 200 {
				t.Errorf("got %v, %v", res, err)
			}
		})
	}
}

func TestPortsOff(t *testing.T) {
	h := host(t, PortsOff, "")
	if res, got, err := h.ask("GET", "/", ""); err != nil || res.StatusCode != 502 || !strings.Contains(got, "forwards no ports") {
		t.Errorf("got %v %q, %v", res, got, err)
	}
	x, err := fake.New(fake.Options{Capabilities: fake.Without(fake.All(), executor.FeaturePorts)}).Open(driver.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := New(x, Config{Keys: []string{alice}, Ports: PortsPrivate}); err == nil || !strings.Contains(err.Error(), "ports") {
		t.Errorf("got %v over a backend without ports", err)
	}
	if _, err := New(x, Config{Keys: []string{alice}, Ports: "some"}); err == nil {
		t.Error("an unknown setting was taken")
	}
}

// A hostile server costs a bounded number of bytes, and nobody waits for it who does not want to.
func TestPortsHostile(t *testing.T) {
	h := host(t, PortsPublic, "")
	if res, got, err := h.ask("GET", "/endless-header", ""); err != nil || res.StatusCode != 502 {
		t.Errorf("an endless header: got %v %q, %v", res, got, err)
	}
	if res, got, err := h.ask("GET", "/endless", ""); err != nil || res.StatusCode != 200 || len(got) != 1<<20 {
		t.Errorf("an endless body: got %v and %d bytes, %v", res, len(got), err)
	}
	if res, got, err := h.ask("GET", "/nonsense", ""); err != nil || res.StatusCode != 502 {
		t.Errorf("no HTTP: got %v %q, %v", res, got, err)
	}
	// One that never answers ends with its sandbox, and with a pause of it.
	for name, end := range map[string]func(h hosted){
		"killed": func(h hosted) { h.want(204, "DELETE", "/sandboxes/"+h.SandboxID, "") },
		"paused": func(h hosted) { h.want(204, "POST", "/sandboxes/"+h.SandboxID+"/pause", "") },
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, PortsPublic, "")
			ended := make(chan error)
			go func() {
				res, got, err := h.ask("GET", "/mute", "")
				if err == nil && res.StatusCode != 502 {
					err = fmt.Errorf("got %d %q", res.StatusCode, got)
				}
				ended <- err
			}()
			waittest.Until(t, "the request arrives", func() error {
				if h.b.Calls(fake.OpDial) == 0 {
					return errors.New("nothing is dialled")
				}
				return nil
			})
			end(h)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// WebSocket is a stream of bytes from its answer on.
func TestPortsUpgrade(t *testing.T) {
	h := host(t, PortsPrivate, "")
	c, err := net.Dial("tcp", h.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /upgrade HTTP/1.1\r\nHost: %s-%s.boxes.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nE2b-Traffic-Access-Token: %s\r\n\r\n", h.port, h.SandboxID, *h.TrafficAccessToken)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("got %v, %v", res, err)
	}
	for _, n := range []int{1, 1000, 1 << 20} {
		data := bytes.Repeat([]byte{0, 255, byte(n)}, n)
		go c.Write(data)
		got := make([]byte, len(data))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s bytes: got others, %v", strconv.Itoa(len(data)), err)
		}
	}
	h.want(204, "DELETE", "/sandboxes/"+h.SandboxID, "")
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("got %d, %v after the end of the sandbox", n, err)
	}
}
