package front

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestHosts(t *testing.T) {
	below := regexp.MustCompile(`^[0-9]{1,5}-[a-z0-9]{1,64}$`)
	named := Policy{Hosts: []string{"Boxes.example", "10.0.0.5", "fd00::5"}, Below: below}
	for name, test := range map[string]struct {
		p    Policy
		host string
		want bool
	}{
		"loopback-name":    {Policy{}, "localhost", true},
		"port":             {Policy{}, "localhost:3000", true},
		"case":             {Policy{}, "LocalHost:3000", true},
		"root":             {Policy{}, "localhost.:3000", true},
		"below-loopback":   {Policy{}, "49983-abc.localhost:3000", true},
		"loopback-4":       {Policy{}, "127.0.0.1:3000", true},
		"loopback-other":   {Policy{}, "127.9.9.9", true},
		"loopback-6":       {Policy{}, "[::1]:3000", true},
		"loopback-6-bare":  {Policy{}, "[::1]", true},
		"loopback-mapped":  {Policy{}, "[::ffff:127.0.0.1]:3000", true},
		"none":             {Policy{}, "", false},
		"only-port":        {Policy{}, ":3000", false},
		"foreign":          {Policy{}, "evil.example:3000", false},
		"all-addresses":    {Policy{}, "0.0.0.0:3000", false},
		"private":          {Policy{}, "10.0.0.5:3000", false},
		"looks-like":       {Policy{}, "localhost.evil.example", false},
		"ends-like":        {Policy{}, "evillocalhost", false},
		"address-in-name":  {Policy{}, "127.0.0.1.evil.example", false},
		"brackets-in-name": {Policy{}, "[::1]evil.example", false},
		"named":            {named, "boxes.example:3000", true},
		"named-address":    {named, "10.0.0.5:3000", true},
		"named-address-6":  {named, "[fd00:0::5]:3000", true},
		"sandbox":          {named, "49983-abc.boxes.example", true},
		"sandbox-nowhere":  {named, "49983-abc.evil.example", false},
		"not-a-sandbox":    {named, "www.boxes.example", false},
		"two-below":        {named, "a.49983-abc.boxes.example", false},
		"below-address":    {named, "49983-abc.10.0.0.5", false},
		"no-form":          {Policy{Hosts: []string{"boxes.example"}}, "49983-abc.boxes.example", false},
		"suffix":           {named, "evilboxes.example", false},
		"every":            {Policy{Hosts: []string{"*"}}, "evil.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.p.allows(test.host); got != test.want {
				t.Errorf("%q: got %v, want %v", test.host, got, test.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	for host, ok := range map[string]bool{
		"*": true, "boxes.example": true, "my_host": true, "10.0.0.5": true, "fd00::5": true,
		"": false, "https://boxes.example": false, "boxes.example:3000": false, "*.example": false, "a..b": false, "a b": false,
	} {
		if err := (Policy{Hosts: []string{host}}).Check(); (err == nil) != ok {
			t.Errorf("%q: got %v", host, err)
		}
	}
}

func TestHandler(t *testing.T) {
	seen := "" // the name that the handler has seen
	h := Policy{}.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = RequestID(r.Context()) }), func(w http.ResponseWriter, r *http.Request, status int, message string) {
		seen = RequestID(r.Context())
		http.Error(w, message, status)
	})
	for name, test := range map[string]struct {
		method, host, origin, site string
		want                       int
	}{
		"program":     {"POST", "localhost:3000", "", "", 200},
		"own-page":    {"POST", "localhost:3000", "http://localhost:3000", "same-origin", 200},
		"old-browser": {"POST", "localhost:3000", "http://localhost:3000", "", 200},
		"host":        {"POST", "evil.example", "", "", 421},
		"host-get":    {"GET", "evil.example", "", "", 421},
		"rebound":     {"POST", "evil.example:3000", "http://evil.example:3000", "same-origin", 421},
		"origin":      {"POST", "localhost:3000", "https://evil.example", "", 403},
		"null-origin": {"POST", "localhost:3000", "null", "", 403},
		"other-port":  {"POST", "localhost:3000", "http://localhost:8080", "", 403},
		"cross-site":  {"POST", "localhost:3000", "", "cross-site", 403},
		"same-site":   {"DELETE", "localhost:3000", "", "same-site", 403},
		"link":        {"GET", "localhost:3000", "", "cross-site", 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), test.method, "/", nil)
			r.Host = test.host
			for k, v := range map[string]string{"Origin": test.origin, "Sec-Fetch-Site": test.site} {
				if v != "" {
					r.Header.Set(k, v)
				}
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != test.want {
				t.Errorf("got %d %s, want %d", rec.Code, rec.Body, test.want)
			}
			if id := rec.Header().Get(RequestIDHeader); !RequestIDForm.MatchString(id) || id != seen || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("got %v for the request %q", rec.Header(), seen)
			}
		})
	}
}

// A client may set the ID of its requests, if that is harmless in headers and logs.
func TestRequestID(t *testing.T) {
	h := Policy{}.Handler(http.NotFoundHandler(), nil)
	for id, kept := range map[string]bool{"abc-1": true, "": false, "a b": false, strings.Repeat("a", 65): false, "a\r\nb": false} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/", nil)
		r.Header.Set(RequestIDHeader, id)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if got := rec.Header().Get(RequestIDHeader); (got == id) != kept || !RequestIDForm.MatchString(got) {
			t.Errorf("%q: got %q", id, got)
		}
	}
}

// A refused request is answered before its body has arrived.
func TestNoBody(t *testing.T) {
	srv := httptest.NewServer(Policy{}.Handler(http.NotFoundHandler(), func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		http.Error(w, message, status)
	}))
	defer srv.Close()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusMisdirectedRequest {
		t.Fatalf("got %v, %v", res, err)
	}
	res.Body.Close()
}

// Only listed origins get permission, and a listed one only for itself.
func TestOrigins(t *testing.T) {
	const app = "https://app.example"
	reached := 0
	handler := func(origins ...string) http.Handler {
		return Policy{Origins: origins}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reached++ }), func(w http.ResponseWriter, _ *http.Request, status int, _ string) {
			w.WriteHeader(status)
		})
	}
	listed := handler(app, "http://localhost:5173")
	for name, test := range map[string]struct {
		h                    http.Handler
		method, host, origin string
		status               int
		allowed              bool
		reaches              bool
	}{
		"post":             {listed, "POST", "", app, 200, true, true},
		"get":              {listed, "GET", "", app, 200, true, true},
		"second":           {listed, "POST", "", "http://localhost:5173", 200, true, true},
		"preflight":        {listed, "OPTIONS", "", app, 204, true, false},
		"foreign":          {listed, "POST", "", "https://evil.example", 403, false, false},
		"foreign-get":      {listed, "GET", "", "https://evil.example", 200, false, true}, // its page cannot read the answer
		"foreign-asks":     {listed, "OPTIONS", "", "https://evil.example", 200, false, true},
		"null":             {listed, "POST", "", "null", 403, false, false},
		"other-scheme":     {listed, "POST", "", "http://app.example", 403, false, false},
		"other-port":       {listed, "POST", "", app + ":8443", 403, false, false},
		"suffix":           {listed, "POST", "", app + ".evil.example", 403, false, false},
		"other-host":       {listed, "POST", "evil.example", app, 421, false, false},
		"other-host-asks":  {listed, "OPTIONS", "evil.example", app, 421, false, false},
		"none-listed":      {handler(), "POST", "", app, 403, false, false},
		"none-listed-asks": {handler(), "OPTIONS", "", app, 200, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), test.method, "http://localhost/v1/run", nil)
			if test.host != "" {
				r.Host = test.host
			}
			r.Header.Set("Origin", test.origin)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			if test.method == "OPTIONS" {
				r.Header.Set("Access-Control-Request-Method", "POST")
			}
			reached = 0
			rec := httptest.NewRecorder()
			test.h.ServeHTTP(rec, r)
			want := ""
			if test.allowed {
				want = test.origin
			}
			h := rec.Header()
			if got := h.Get("Access-Control-Allow-Origin"); rec.Code != test.status || got != want || (reached == 1) != test.reaches {
				t.Errorf("got %d, allowed %q, reached %d times", rec.Code, got, reached)
			}
			if h.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
		})
	}
	for origin, ok := range map[string]bool{
		app: true, "http://127.0.0.1:8080": true, "http://[::1]:3000": true,
		"*": false, "null": false, "": false, "https://*.example": false, "app.example": false, app + "/": false, app + "/page": false,
		"https://App.example": false, "ftp://app.example": false, "https://user@app.example": false, "https://": false,
	} {
		if err := (Policy{Origins: []string{origin}}).Check(); (err == nil) != ok {
			t.Errorf("%q: got %v", origin, err)
		}
	}
}
