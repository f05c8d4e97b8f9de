package front_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/internal/front/fronttest"
)

// handler refuses requests without a key, reads bodies, and answers as it is asked.
func handler(t *testing.T) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /whole", func(w http.ResponseWriter, r *http.Request) {
		body, err := front.Body(w, r, 1<<20)
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestTimeout)
			return
		}
		front.Answer(w, http.StatusOK, len(body), "")
	})
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		front.Upload(r.Context())
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestTimeout)
			return
		}
		front.Answer(w, http.StatusOK, n, "")
	})
	mux.HandleFunc("POST /lifted", func(w http.ResponseWriter, r *http.Request) {
		front.Lift(r.Context())
		n, err := io.Copy(io.Discard, r.Body)
		front.Answer(w, http.StatusOK, n, "")
		if err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	mux.HandleFunc("GET /stream", func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			if _, err := io.WriteString(w, "event\n"); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			time.Sleep(2 * front.WriteTime)
		}
	})
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Hour):
			front.Answer(w, http.StatusOK, "done", "")
		case <-r.Context().Done():
			t.Error("the request ended before its handler")
		}
	})
	mux.HandleFunc("GET /empty", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /hijack", func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		if rw.Flush() == nil {
			_, _ = io.Copy(c, rw)
		}
	})
	return front.Policy{}.Handler(mux, func(w http.ResponseWriter, _ *http.Request, status int, message string) {
		http.Error(w, message, status)
	})
}

func TestClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		return fronttest.Front{
			Handler: handler(t),
			Refused: [][]string{{"POST /whole", "Sec-Fetch-Site: cross-site"}, {"POST /nothing"}},
			Reads:   [][]string{{"POST /whole"}, {"POST /upload"}},
			Answers: [][]string{{"GET /empty"}, {"GET /large"}},
		}
	})
}

// Clients that make progress are served, however long they take.
func TestLongRequests(t *testing.T) {
	run := func(name string, f func(*testing.T, *fronttest.Conn)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, fronttest.Serve(t, front.Server(handler(t))).Dial(t)) })
		})
	}
	pieces := func(t *testing.T, c *fronttest.Conn, number, size int, pause time.Duration) {
		for range number {
			time.Sleep(pause)
			if _, err := c.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run("upload", func(t *testing.T, c *fronttest.Conn) {
		c.Send([]string{"POST /upload", "Content-Length: 104857600"}, "", "")
		pieces(t, c, 100, 1<<20, front.DefaultBodyTime*9/10)
		if res := c.WantAnswer([]string{"upload"}); res.StatusCode != http.StatusOK {
			t.Errorf("got %s", res.Status)
		}
	})
	run("lifted", func(t *testing.T, c *fronttest.Conn) {
		c.Send([]string{"POST /lifted", "Content-Length: 10"}, "", "")
		pieces(t, c, 10, 1, time.Hour)
		if res := c.WantAnswer([]string{"lifted"}); res.StatusCode != http.StatusOK {
			t.Errorf("got %s", res.Status)
		}
	})
	run("slow", func(t *testing.T, c *fronttest.Conn) {
		c.Send([]string{"GET /slow"}, "", "")
		if res := c.WantAnswer([]string{"slow"}); res.StatusCode != http.StatusOK {
			t.Errorf("got %s", res.Status)
		}
	})
	run("stream", func(t *testing.T, c *fronttest.Conn) {
		c.Send([]string{"GET /stream"}, "", "")
		c.WantAnswer([]string{"stream"}) // to its end
	})
	run("download", func(t *testing.T, c *fronttest.Conn) {
		c.Send([]string{"GET /large"}, "", "")
		for n, piece := 0, make([]byte, 64<<10); n < 1<<20; {
			time.Sleep(front.WriteTime / 3)
			m, err := io.ReadFull(c, piece)
			if n += m; err != nil && n < 1<<20 {
				t.Fatal(err)
			}
		}
	})
	run("hijacked", func(t *testing.T, c *fronttest.Conn) {
		c.Send([]string{"GET /hijack"}, "", "")
		c.WantAnswer([]string{"hijack"})
		for range 10 {
			time.Sleep(time.Hour)
			c.Send([]string{"hello"}, "", "")
			if _, err := io.ReadFull(c, make([]byte, len("hello HTTP/1.1\r\nHost: localhost\r\n\r\n"))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A client that does not read what is sent over a hijacked connection is disconnected.
func TestHijacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fronttest.Serve(t, &http.Server{Handler: handler(t)}).Dial(t)
		c.Send([]string{"GET /hijack"}, "", "")
		c.WantAnswer([]string{"hijack"})
		c.Send([]string{"hello"}, "", "")
		time.Sleep(fronttest.Long)
		if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

// What a server of the command line bounds besides: headers, and connections without a request.
func TestServer(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "header": "GET /empty HTTP/1.1\r\nHost: local", "idle": "GET /empty HTTP/1.1\r\nHost: localhost\r\n\r\n", "not-http": "hello\r\n\r\n",
	} {
		for _, reads := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := fronttest.Serve(t, front.Server(handler(t))).Dial(t)
					if _, err := io.WriteString(c, text); err != nil {
						t.Fatal(err)
					}
					if reads {
						_, _ = io.Copy(io.Discard, c) // until the server closes the connection
						return
					}
					time.Sleep(time.Hour)
					if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
						t.Errorf("got %v", err)
					}
				})
			})
		}
	}
}

// Of the connections of an address, those whose client has not shown a key are few. Connections of
// proxies and Unix sockets are not counted by address.
func TestLimits(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	const from = "192.0.2.1"
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			front.Admit(r.Context())
		}
		front.Answer(w, http.StatusOK, 1, "")
	})
	for name, test := range map[string]struct {
		from, then net.Addr
		known      bool
		open       bool // the third connection
	}{
		"address":       {tcp(from), tcp(from), false, false},
		"others":        {tcp(from), tcp("192.0.2.2"), false, true},
		"network-6":     {tcp("2001:db8::1"), tcp("2001:db8::2"), false, false},
		"other-6":       {tcp("2001:db8::1"), tcp("2001:db8:0:1::1"), false, true},
		"mapped":        {tcp(from), tcp("::ffff:" + from), false, false},
		"known":         {tcp(from), tcp(from), true, true},
		"proxy":         {tcp("10.1.2.3"), tcp("10.1.2.3"), false, true},
		"unix":          {&net.UnixAddr{}, &net.UnixAddr{}, false, true},
		"not-the-proxy": {tcp("10.2.2.3"), tcp("10.2.2.3"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := &front.Limits{Connections: 10, PerAddress: 2, Proxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Log: slog.New(slog.DiscardHandler)}
				s := fronttest.Serve(t, front.Server(h), func(l net.Listener) net.Listener { return limits.Listen(l) })
				request := []string{"GET /"}
				if test.known {
					request = append(request, "Authorization: x")
				}
				var conns []*fronttest.Conn
				for range 2 {
					c := s.DialFrom(t, test.from)
					c.Send(request, "", "")
					c.WantAnswer(request)
					conns = append(conns, c)
				}
				c := s.DialFrom(t, test.then)
				if !test.open {
					c.WantEnd(request)
					conns[0].Close()
					synctest.Wait() // until it no longer counts
					c = s.DialFrom(t, test.then)
				}
				c.Send(request, "", "")
				c.WantAnswer(request)
			})
		})
	}
}

// All connections together are bounded. More wait until one ends.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := &front.Limits{Connections: 2, PerAddress: 100, Log: slog.New(slog.DiscardHandler)}
		s := fronttest.Serve(t, front.Server(handler(t)), func(l net.Listener) net.Listener { return limits.Listen(l) })
		first := s.Dial(t)
		s.Dial(t)
		third := make(chan *fronttest.Conn)
		go func() { third <- s.Dial(t) }()
		synctest.Wait()
		select {
		case <-third:
			t.Fatal("a third connection is accepted")
		default:
		}
		first.Close()
		c := <-third
		c.Send([]string{"GET /empty"}, "", "")
		c.WantAnswer([]string{"GET /empty"})
	})
}

func TestParseProxy(t *testing.T) {
	for text, want := range map[string]string{"10.1.0.7": "10.1.0.7/32", "10.1.0.7/16": "10.1.0.0/16", "fd00::5": "fd00::5/128", "proxy.example": "", "": "", "10.1.0.7:80": ""} {
		got, err := front.ParseProxy(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: got %v, %v, want %q", text, got, err, want)
		}
	}
}
