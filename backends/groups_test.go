package backends_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// runs runs code in a conversation. It returns what the code printed, and what else there is to
// read.
type runs func(l executor.Language, code string) (stdout, notes string)

// A front opens a conversation of a broker. end ends it.
type front func(w *world, b *backends.Broker) (run runs, end func())

var fronts = map[string]front{
	"tool": func(w *world, b *backends.Broker) (runs, func()) {
		x, err := tool.New(b, b.Manager(), tool.Options{})
		if err != nil {
			w.Fatal(err)
		}
		c := tool.Conversation{ID: "ann/c1", Subject: "ann"}
		run := func(l executor.Language, code string) (string, string) {
			out, err := x.Run(w.Context(), c, tool.Input{Language: l, Code: code}, nil)
			if err != nil {
				w.Errorf("%s: %s: %v", l, code, err)
			}
			return out.Stdout, out.Stderr + out.Error
		}
		return run, func() {
			if err := x.Reset(w.Context(), c); err != nil {
				w.Error(err)
			}
		}
	},
	"mcp": func(w *world, b *backends.Broker) (runs, func()) {
		x, err := tool.New(b, b.Manager(), tool.Options{})
		if err != nil {
			w.Fatal(err)
		}
		s := mcp.New(x, mcp.Options{})
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Serve(w.Context(), in, out) }()
		c, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(w.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
		if err != nil {
			w.Fatal(err)
		}
		run := func(l executor.Language, code string) (string, string) {
			res, err := c.CallTool(w.Context(), &sdk.CallToolParams{Name: x.Definition().Name, Arguments: map[string]any{"language": l, "code": code}})
			if err != nil {
				w.Fatal(err)
			}
			raw, err := json.Marshal(res.StructuredContent)
			var o tool.Output
			if err == nil {
				err = json.Unmarshal(raw, &o)
			}
			if err != nil {
				w.Fatal(err)
			}
			return o.Stdout, o.Stderr + o.Error
		}
		return run, func() {
			c.Close()
			toServer.Close()
			if err := errors.Join(<-served, s.Close()); err != nil {
				w.Error(err)
			}
		}
	},
	"http": func(w *world, b *backends.Broker) (runs, func()) { // of one language
		keys, err := server.ParseKeys([]byte(`[{"key": "key-of-ann-0123456789", "subject": "ann"}]`))
		if err != nil {
			w.Fatal(err)
		}
		s, err := server.New(b, server.Config{Keys: keys, Conversations: b.Manager()})
		if err != nil {
			w.Fatal(err)
		}
		request := func(method, path string, body any) (status int, answer []byte) {
			raw, err := json.Marshal(body)
			if err != nil {
				w.Fatal(err)
			}
			r := httptest.NewRequestWithContext(w.Context(), method, "http://localhost"+path, strings.NewReader(string(raw)))
			r.Header.Set("Authorization", "Bearer key-of-ann-0123456789")
			r.Header.Set("Content-Type", "application/json")
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, r)
			return rec.Code, rec.Body.Bytes()
		}
		used := map[executor.Language]bool{}
		run := func(l executor.Language, code string) (string, string) {
			used[l] = true
			status, raw := request(http.MethodPost, "/v1/conversations/c1-"+string(l)+"/run", map[string]any{"code": code, "session": map[string]any{"languages": []executor.Language{l}}})
			var o struct {
				Stdout, Stderr executor.Bytes
				Conversation   json.RawMessage
			}
			if err := json.Unmarshal(raw, &o); err != nil || status != http.StatusOK {
				w.Errorf("%d, %v: %s", status, err, raw)
			}
			return string(o.Stdout), string(o.Stderr) + string(o.Conversation)
		}
		return run, func() {
			for l := range used {
				if status, raw := request(http.MethodDelete, "/v1/conversations/c1-"+string(l), nil); status >= 300 {
					w.Errorf("%d: %s", status, raw)
				}
			}
			if err := s.Close(); err != nil {
				w.Error(err)
			}
		}
	},
}

// TestConversationsMove: a conversation in two languages goes on with the variables and files of
// both, whichever way its backend changes, from and to backends that mix languages in a sandbox and
// that do not. Once both languages are in one sandbox, they share the files.
func TestConversationsMove(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	shapes := map[string]executor.Capabilities{
		"mixed": fake.All(),
		"apart": fake.Without(fake.All(), executor.FeatureMixedLanguages),
	}
	const (
		both     = "backends: {old: {type: fake, on: a}, new: {type: fake, on: b}}\n"
		keep     = "sessions: {checkpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}}\n"
		toOld    = "routes: [{name: r, split: [{backend: old, weight: 1}, {backend: new, weight: 0}]}]\n"
		toNew    = "routes: [{name: r, split: [{backend: old, weight: 0}, {backend: new, weight: 1}]}]\n"
		toBoth   = "routes: [{name: r, split: [{backend: old, weight: 1}, {backend: new, weight: 1}]}]\n"
		orNew    = "routes: [{name: r, split: [{backend: old, weight: 1}], fallback: [new]}]\n"
		draining = "sessions: {drain: [old], checkpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}}\n"
		bigger   = "escalate: [{from: old, to: new, on: [threads]}]\n"
	)
	breaks := func(w *world) {
		for _, id := range w.at["a"].Sandboxes() {
			w.at["a"].Break(id)
		}
		time.Sleep(5 * time.Minute) // until it is noticed
	}
	all := []executor.Language{executor.Python, executor.JavaScript}
	for way, c := range map[string]struct {
		before, after string
		change        func(w *world, b *backends.Broker)
		stays         bool // sandboxes stay on the old backend until they end
		apart         bool // a backend that does not mix is still in use
		late          bool // JavaScript is not used before
	}{
		"weights": {before: both + keep + toOld, after: both + keep + toNew, stays: true},
		"split":   {before: both + keep + toOld, after: both + keep + toBoth, stays: true, apart: true},
		"evicted": {before: both + keep + toOld, after: both + keep + toNew, change: func(w *world, b *backends.Broker) {
			for _, err := range b.Manager().Drain(w.Context(), "old") {
				if err != nil {
					w.Error(err)
				}
			}
		}},
		"drain":   {before: both + keep + toOld, after: both + draining + toNew},
		"late":    {before: both + keep + toOld, after: both + draining + toNew, late: true},
		"removed": {before: both + keep + toOld, after: "backends: {new: {type: fake, on: b}}\n" + keep, stays: true},
		"broken":  {before: both + keep + toOld, after: both + keep + toNew, change: func(w *world, _ *backends.Broker) { breaks(w) }},
		"fallback": {before: both + keep + orNew, apart: true, change: func(w *world, _ *backends.Broker) {
			breaks(w)
			w.outage("a", -1)
		}},
		"escalated": {before: both + keep + bigger + toOld, apart: true},
	} {
		for from, old := range shapes {
			for to, next := range shapes {
				for name, open := range fronts {
					if name == "mcp" && from == to || name == "http" && (from != "mixed" || to != "mixed") {
						continue // MCP is over package tool, and a conversation over HTTP has one language here
					}
					t.Run(way+"/"+from+"-"+to+"/"+name, func(t *testing.T) {
						bubble(t, fake.Options{}, func(w *world) {
							old, next := old, next
							if way == "drain" { // the configuration has chosen a backend with a weaker isolation
								old.Isolation, next.Isolation = executor.IsolationMicroVM, executor.IsolationContainer
							}
							w.at["a"], w.at["b"] = fake.New(fake.Options{Capabilities: old}), fake.New(fake.Options{Capabilities: next})
							b := w.open(c.before)
							defer w.close(b)
							run, end := open(w, b)
							defer end()
							call := func(l executor.Language, code, want string) (notes string) {
								w.Helper()
								got, notes := run(l, code)
								if got != want {
									w.Errorf("%s: %s: got %q, %s, want %q", l, code, got, notes, want)
								}
								return notes
							}
							begin := func(l executor.Language) {
								w.Helper()
								call(l, fmt.Sprintf("x = '%s'; write('%[1]s.txt', 'of %[1]s'); write('shared', 'of %[1]s')", l), "")
								time.Sleep(time.Second)
							}
							begin(executor.Python)
							if !c.late {
								begin(executor.JavaScript)
							}
							if c.after != "" {
								if err := b.Reload(w.Context(), parse(w.T, c.after)); err != nil {
									w.Fatal(err)
								}
							}
							if c.change != nil {
								c.change(w, b)
							}
							if way == "drain" && from == "mixed" && to == "apart" && name != "http" { // it stays until a checkpoint can be made
								for range 3 {
									w.at["a"].Fail(fake.OpRun, 3, unavailable)
									call(executor.Python, "print(x)", "python\n")
								}
							}
							if way == "escalated" {
								run(executor.Python, "import threading")
							}
							if c.late {
								begin(executor.JavaScript)
							}
							check := func(together bool) {
								w.Helper()
								var notes string
								for range 2 {
									for _, l := range all {
										time.Sleep(time.Second)
										notes += call(l, fmt.Sprintf("print(x); print(read('%s.txt'))", l), fmt.Sprintf("%s\nof %[1]s\n", l))
									}
								}
								if !together {
									return
								}
								for _, l := range all {
									call(l, "print(read('python.txt')); print(read('javascript.txt')); print(read('shared'))", "of python\nof javascript\nof javascript\n")
								}
								if from == "apart" && !c.late && strings.Count(notes, "shared") != 2 { // among the files, and among what was not kept
									w.Errorf("got %d times which file was replaced: %s", strings.Count(notes, "shared"), notes)
								}
							}
							together := name != "http" && to == "mixed" && (from == "mixed" || !c.apart)
							check(together && !c.stays)
							synctest.Wait() // what was left is closed in the background
							if n := len(w.at["a"].Sandboxes()); n > 0 && way == "drain" {
								w.Errorf("%d sandboxes are left where none is to be", n)
							}
							if c.stays {
								breaks(w)
								check(together)
							}
						})
					})
				}
			}
		}
	}
}

// TestMergedWhileAnotherCallWaits: of two calls in two languages at the same moment, in two
// processes, none finds its variables gone because the other has brought the languages together.
func TestMergedWhileAnotherCallWaits(t *testing.T) {
	t.Setenv("CHECKPOINT_KEY", strings.Repeat("k", 32))
	for name, drain := range map[string]string{"leave": "drain: [old], ", "evicted": ""} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, func(w *world) {
				const keep = "backends: {old: {type: fake, on: a}, new: {type: fake, on: b}}\nsessions: {%scheckpoint: {every: 1 run, key: {env: CHECKPOINT_KEY}}}\n" +
					"routes: [{name: r, split: [{backend: old, weight: %d}, {backend: new, weight: %d}]}]\n"
				w.at["a"] = fake.New(fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureMixedLanguages)})
				store := sessions.NewMemoryStore()
				var brokers []*backends.Broker
				var tools []*tool.Tool
				for _, instance := range []string{"one", "two"} {
					b := w.openAs(instance, fmt.Sprintf(keep, "", 1, 0), backends.WithStore(store))
					defer w.close(b)
					x, err := tool.New(b, b.Manager(), tool.Options{})
					if err != nil {
						w.Fatal(err)
					}
					brokers, tools = append(brokers, b), append(tools, x)
				}
				all := []executor.Language{executor.Python, executor.JavaScript}
				call := func(i int, id string, l executor.Language, code, want string) {
					out, err := tools[i].Run(w.Context(), tool.Conversation{ID: id, Subject: "ann"}, tool.Input{Language: l, Code: code}, nil)
					if err != nil || out.Stdout != want {
						w.Errorf("%s, %s: got %q, %s, %s, %v", id, l, out.Stdout, out.Stderr, out.Error, err)
					}
				}
				for id := range 30 {
					for _, l := range all {
						call(id%2, fmt.Sprint(id), l, fmt.Sprintf("x = '%s'", l), "")
					}
				}
				for _, b := range brokers {
					if err := b.Reload(w.Context(), parse(w.T, fmt.Sprintf(keep, drain, 0, 1))); err != nil {
						w.Fatal(err)
					}
				}
				if drain == "" {
					for _, err := range brokers[0].Manager().Drain(w.Context(), "old") {
						if err != nil {
							w.Error(err)
						}
					}
				}
				for id := range 30 {
					var wg sync.WaitGroup
					for i, l := range all {
						wg.Go(func() { call((i+id/2)%2, fmt.Sprint(id), l, "print(x)", string(l)+"\n") })
						if id%3 == 0 {
							wg.Go(func() { call(i, fmt.Sprint(id), l, "print(x)", string(l)+"\n") })
						}
					}
					wg.Wait()
					if err := tools[0].Reset(w.Context(), tool.Conversation{ID: fmt.Sprint(id), Subject: "ann"}); err != nil {
						w.Error(err)
					}
				}
			})
		})
	}
}
