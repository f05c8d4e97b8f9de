package server

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
)

// replicas are servers over one backend and one store, as in several processes.
func replicas(t *testing.T, o fake.Options, n int) (all []world) {
	t.Helper()
	b, store := fake.New(o), sessions.NewMemoryStore()
	for i := range n {
		name := fmt.Sprint("replica-", i)
		x, err := b.Open(driver.Env{Name: "box", Instance: name})
		if err != nil {
			t.Fatal(err)
		}
		m, err := sessions.New(x, store, sessions.Options{Instance: name, Checkpoint: sessions.Checkpoints{Every: 1, Key: bytes.Repeat([]byte{7}, 32)}})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Conversations: m}
		for key, c := range map[string]Client{alice: {Subject: "a/b", Attributes: map[string]string{"plan": "pro"}}, bob: {Subject: "a"}} {
			if err := cfg.Keys.Add(key, c); err != nil {
				t.Fatal(err)
			}
		}
		s, err := New(x, cfg)
		if err != nil {
			t.Fatal(err)
		}
		w := world{T: t, b: b, s: s, h: httptest.NewServer(s)}
		t.Cleanup(func() {
			w.h.CloseClientConnections()
			w.h.Close()
			for _, c := range []func() error{s.Close, func() error { return m.Close(t.Context()) }, x.Close} {
				_ = c()
			}
		})
		all = append(all, w)
	}
	return all
}

// A conversation goes on at another server, with its variables and files.
func TestConversations(t *testing.T) {
	all := replicas(t, fake.Options{Packages: []string{"six"}}, 2)
	one, two := all[0], all[1]
	const c = "/v1/conversations/chat%2F7"
	for _, op := range [][2]string{{"GET", c}, {"GET", c + "/files"}, {"PUT", c + "/files/a"}, {"POST", c + "/reset"}} {
		has(t, one.want(404, op[0], op[1], ""), `"kind":"not-found"`)
	}
	if n := len(one.b.Sandboxes()); n != 0 {
		t.Fatalf("%d sandboxes were made by operations that make none", n)
	}
	const js = `"session": {"languages": ["javascript"], "env": {"A": "b"}}`
	has(t, one.want(200, "POST", c+"/run", `{"code": "x = 41", `+js+`}`), `"conversation":{"fresh":true,"lost":false}`)
	has(t, two.want(200, "POST", c+"/run", `{"code": "print(x + 1, env(\"A\"))", `+js+`}`), `"42 b\n"`, `"conversation":{"fresh":false,"lost":false}`)
	two.want(201, "PUT", c+"/files/kept", "text")
	if got := one.want(200, "GET", c+"/files/kept", ""); got != "text" {
		t.Errorf("got %q", got)
	}
	has(t, one.want(200, "GET", c+"/files", ""), `"name":"kept"`)
	has(t, one.want(200, "GET", c, ""), `"key":"chat/7"`, `"languages":["javascript"]`, `"backend":"box"`, `"fresh":false`)
	has(t, two.want(200, "POST", c+"/packages", `{"names": ["six"]}`), `"status":"ok"`)
	two.want(204, "POST", c+"/reset", "")
	has(t, one.want(200, "POST", c+"/run", `{"code": "print(x)", `+js+`}`), `"status":"failed"`)
	_, got := two.do("POST", c+"/run/stream", `{"code": "print(1)", `+js+`}`)
	has(t, got, "event: stdout", "event: done", `"conversation":{"fresh":false,"lost":false}`)

	// What the session is cannot change, and a client learns it.
	has(t, two.want(400, "POST", c+"/run", `{"code": "print(1)", "session": {"languages": ["python"]}}`), "languages")
	has(t, two.want(400, "POST", c+"/run", `{"code": "1", "id": "r", "input": true}`), "input")
	has(t, two.want(400, "PUT", c, `{"ports": true}`), "ports")
	has(t, two.want(400, "PUT", "/v1/conversations/"+strings.Repeat("k", 600), ""), "key")

	// A sandbox that is gone is said to be lost until something has run. What was kept comes back.
	for _, b := range one.b.Sandboxes() {
		one.b.Break(b)
	}
	one.want(404, "GET", c+"/files/kept", "")
	v := decode[Conversation](t, one.want(201, "PUT", c, `{"languages": ["javascript"]}`))
	if !v.Fresh || !v.Lost || v.Why != sessions.LossGone || v.Kept == nil || len(v.Kept.Files) != 1 || v.Kept.Files[0] != "kept" {
		t.Errorf("got %+v", v.Turn)
	}
	if v = decode[Conversation](t, two.want(200, "PUT", c, `{"languages": ["javascript"]}`)); v.Fresh || !v.Lost {
		t.Errorf("got %+v", v.Turn)
	}

	// Another subject has other conversations, however their names are put together.
	has(t, two.want(200, "POST", "/v1/conversations/b%2Fchat%2F7/run", `{"code": "print(1)"}`, "Authorization", "Bearer "+bob), `"fresh":true`)
	two.want(404, "GET", c, "", "Authorization", "Bearer "+bob)
	two.want(204, "DELETE", c, "", "Authorization", "Bearer "+bob)
	one.want(200, "GET", c, "")
	two.want(204, "DELETE", c, "")
	two.want(204, "DELETE", c, "")
	one.want(404, "GET", c, "")
	one.want(204, "DELETE", "/v1/conversations/b%2Fchat%2F7", "", "Authorization", "Bearer "+bob)
	if n := len(one.b.Sandboxes()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// A repeated request does not run again, at whichever server it arrives. One that did not run may
// be repeated.
func TestConversationRepeats(t *testing.T) {
	all := replicas(t, fake.Options{}, 2)
	const c = "/v1/conversations/k"
	const body = `{"id": "m1", "code": "n = recall(\"n\", 0) + 1"}`
	all[0].b.Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
	all[0].want(503, "POST", c+"/run", body)
	all[1].want(200, "POST", c+"/run", body)
	for _, w := range all {
		has(t, w.want(409, "POST", c+"/run", body), `"kind":"repeated"`, `"ran":"yes"`)
		w.want(409, "POST", c+"/run/stream", body)
	}
	has(t, all[0].want(200, "POST", c+"/run", `{"code": "print(n)"}`), `"1\n"`)
	all[0].want(204, "DELETE", c, "")
}

// One request at a time uses a conversation; the others wait, and only so many.
func TestConversationWaits(t *testing.T) {
	all := replicas(t, fake.Options{}, 2)
	const c = "/v1/conversations/k"
	run := func(w world, code string) {
		if res, got := w.do("POST", c+"/run", `{"code": "`+code+`"}`); res.StatusCode != 200 {
			t.Errorf("got %d %s", res.StatusCode, got)
		}
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			run(all[i%2], `n = recall(\"n\", 0) + 1`)
		})
	}
	wg.Wait()
	has(t, all[0].want(200, "POST", c+"/run", `{"code": "print(n)"}`), `"8\n"`)
	all[1].s.cfg.MaxRuns = 1
	release := all[1].b.Hold(fake.OpRun)
	wg.Go(func() { run(all[1], "1") })
	client, _ := all[1].s.cfg.Keys.Lookup(alice)
	all[1].until("the run begins", func() bool {
		all[1].s.mu.Lock()
		defer all[1].s.mu.Unlock()
		return all[1].s.usageOf(client).turns == 1
	})
	has(t, all[1].want(429, "GET", c, ""), `"rule":"runs-at-once"`)
	release()
	wg.Wait()
	all[0].want(204, "DELETE", c, "")
}

// If the backend cannot attach, the answer names the server that has the conversation.
func TestConversationElsewhere(t *testing.T) {
	all := replicas(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList)}, 2)
	const c = "/v1/conversations/k"
	all[0].want(200, "POST", c+"/run", `{"code": "1"}`)
	for _, op := range [][2]string{{"GET", ""}, {"PUT", ""}, {"DELETE", ""}} {
		has(t, all[1].want(421, op[0], c, op[1]), `"kind":"elsewhere"`, `"instance":"replica-0"`, `"ran":"no"`)
	}
	all[0].want(204, "DELETE", c, "")
}

// A server without a Manager says that it has no conversations.
func TestWithoutConversations(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{})
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		has(t, w.want(501, method, "/v1/conversations/k", ""), "unsupported")
	}
}
