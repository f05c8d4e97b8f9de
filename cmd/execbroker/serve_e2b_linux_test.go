package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/internal/waittest"
)

// A killed server leaves sandboxes. They are gone from the engine within the times in the guide: a
// paused one, one in which something runs forever, and an idle one. The next server does not know
// them, and answers as E2B does.
func TestServeE2BKilled(t *testing.T) {
	t.Parallel()
	host, config := boxes(t)
	owner := testOwner()
	server := func() (*process, serving) {
		p := installed(t, "serve", "--api", "e2b", "--listen", "127.0.0.1:0", "--json", "--config", config, "--owner", owner, "--paused-ttl", "2s", "--max-timeout", "20s")
		p.Env = append(p.Env, keysVariable+"=first")
		return p, announced[serving](t, p)
	}
	p, s := server()
	key := []string{"X-API-KEY", "first"}
	begun := func(id string) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/execute", strings.NewReader(`{"code": "print('on', flush=True)\nwhile True: pass"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", "49999")
		res, err := (&http.Client{Timeout: time.Minute}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		for in := bufio.NewScanner(res.Body); !strings.Contains(in.Text(), `on\n`); {
			if !in.Scan() {
				t.Fatalf("the code has not begun: %v", in.Err())
			}
		}
	}
	var ids []string
	kinds := []struct{ runs, paused bool }{{true, true}, {true, false}, {}}
	for _, c := range kinds {
		var made struct{ SandboxID string }
		if err := json.Unmarshal([]byte(ask(t, 201, "POST", s.URL+"/v2/sandboxes", `{"templateID": "base", "timeout": 20}`, key...)), &made); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.SandboxID)
		if c.runs {
			begun(made.SandboxID)
		}
	}
	for i, c := range kinds { // they all have begun: their time may be short from now on
		ask(t, 204, "POST", s.URL+"/sandboxes/"+ids[i]+"/timeout", `{"timeout": 6}`, key...)
		if c.paused {
			ask(t, 204, "POST", s.URL+"/sandboxes/"+ids[i]+"/pause", "", key...)
		}
	}
	_ = p.Process.Kill()
	_ = p.Wait()
	if n := containers(t, host, owner); n == 0 {
		t.Error("no container is left, want that the server was killed before any has ended")
	}
	p, s = server()
	for _, id := range ids {
		ask(t, 404, "GET", s.URL+"/sandboxes/"+id, "", key...)
		ask(t, 404, "POST", s.URL+"/v2/sandboxes/"+id+"/connect", `{"timeout": 4}`, key...)
		contains(t, ask(t, 502, "GET", s.URL+"/health", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983"), "sandbox was not found")
	}
	waittest.Until(t, "nothing of a killed server is left", func() error {
		if n := containers(t, host, owner); n > 0 {
			return fmt.Errorf("%d containers are", n)
		}
		return nil
	})
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
}
