package server_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/internal/front/fronttest"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/page"
)

const key = "key-of-alice-0123456789"

// open makes a server in a bubble.
func open(t *testing.T) *server.Server {
	t.Helper()
	x, err := fake.New(fake.Options{}).Open(driver.Env{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{Page: page.Handler()}
	if err := cfg.Keys.Add(key, server.Client{}); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(x, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []func() error{s.Close, x.Close} {
			if err := c(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// session makes a session and returns its path.
func session(t *testing.T, s *fronttest.Server, fields string) string {
	t.Helper()
	c := s.Dial(t)
	request := []string{"POST /v1/sessions", "Authorization: Bearer " + key, "Content-Length: 2"}
	c.Send(request, "", "{}")
	return c.WantAnswer(request).Header.Get("Location") + fields
}

func TestClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		s := open(t)
		at := session(t, fronttest.Serve(t, front.Server(s)), "")
		bearer := "Authorization: Bearer " + key
		return fronttest.Front{
			Handler: s,
			Refused: [][]string{
				{"POST /v1/run"}, {"POST /v1/run/stream"}, {"PUT " + at + "/files/a"}, {"POST " + at + "/ports/80"}, {"POST /nothing"}, {"POST /"},
				{"POST /v1/run", bearer, "Sec-Fetch-Site: cross-site"}, {"POST /v1/sessions/none/run", bearer}, {"POST " + at + "/ports/80", bearer},
			},
			Reads:   [][]string{{"POST /v1/run", bearer}, {"POST /v1/run/stream", bearer}, {"POST /v1/sessions", bearer}, {"PUT " + at + "/files/a", bearer}},
			Answers: [][]string{{"GET /v1/health"}, {"GET /v1/openapi.json"}, {"GET /"}, {"GET /v1/stats"}, {"GET /v1/stats", bearer}, {"GET /v1/capabilities", bearer}},
		}
	})
}

// A stream that is longer than every deadline arrives, and a run that nobody reads is stopped.
func TestLongStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fronttest.Serve(t, front.Server(open(t)))
		for name, reads := range map[string]bool{"reader": true, "no-reader": false} {
			c, code := s.Dial(t), `{"code": "print(1)\nsleep(280000)\nprint(2)", "timeout_seconds": 300}`
			began := time.Now()
			c.Send([]string{"POST " + session(t, s, "/run/stream"), "Authorization: Bearer " + key, "Content-Length: 75"}, "", (code + strings.Repeat(" ", 75))[:75])
			if !reads {
				time.Sleep(fronttest.Long)
				if _, err := c.Write([]byte("x")); err == nil {
					t.Error("the connection of a client that does not read is open")
				}
				continue
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(name, err)
			}
			text := new(strings.Builder)
			if _, err := bufio.NewReader(res.Body).WriteTo(text); err != nil || !strings.Contains(text.String(), "event: done") || !strings.Contains(text.String(), `"status":"ok"`) {
				t.Errorf("got %s, %v", text, err)
			}
			res.Body.Close()
			if took := time.Since(began); took < 280*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}
