package e2b

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
)

// state is what the server says of a sandbox, or "gone".
func (w world) state(id string) string {
	w.Helper()
	if rec := w.do("GET", "/sandboxes/"+id, ""); rec.Code == http.StatusNotFound {
		return "gone"
	}
	return w.detail(id).State
}

func TestPause(t *testing.T) {
	bubble(t, fake.Options{}, Config{PausedTTL: 10 * time.Minute}, func(w world) {
		id, other := w.create(`"timeout": 60`).SandboxID, w.create(`"timeout": 3600`).SandboxID
		w.want(409, "POST", "/sandboxes/"+id+"/resume", "{}")
		w.want(501, "POST", "/sandboxes/"+id+"/pause", `{"memory": false}`)
		w.want(204, "POST", "/sandboxes/"+id+"/pause", "")
		w.want(409, "POST", "/sandboxes/"+id+"/pause", "")
		w.want(404, "POST", "/sandboxes/"+id+"/timeout", `{"timeout": 3600}`)
		w.want(404, "POST", "/sandboxes/"+id+"/refreshes", `{"duration": 3600}`)
		if rec := w.do("GET", "/health", "", at(id, envdPort)...); rec.Code != http.StatusBadGateway {
			t.Errorf("got %d %s from a paused sandbox", rec.Code, rec.Body)
		}
		for query, want := range map[string]string{"paused": id, "running": other} {
			rec := w.want(200, "GET", "/v2/sandboxes?state="+query, "")
			if all := decode[[]sandboxDetail](t, rec); len(all) != 1 || all[0].SandboxID != want || all[0].State != query || rec.Header().Get("X-Total-Running") != "1" {
				t.Errorf("%s: got %+v", query, all)
			}
		}
		time.Sleep(5 * time.Minute) // longer than the timeout that it was created with
		w.want(201, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout": 120}`)
		if d := w.detail(id); d.State != stateRunning || time.Until(d.EndAt) != 2*time.Minute || d.Lifecycle.OnTimeout != onTimeoutKill {
			t.Errorf("got %+v", d)
		}
		w.want(200, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout": 60}`)
		w.want(204, "GET", "/health", "", at(id, envdPort)...)
		w.want(204, "POST", "/sandboxes/"+id+"/pause", `{"memory": true}`)
		w.want(201, "POST", "/sandboxes/"+id+"/resume", `{"timeout": 30, "autoPause": true}`)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := w.state(id); got != statePaused {
			t.Errorf("got %s when its time is over, want that it is paused", got)
		}
		var v2, v1 struct{ Logs, LogEntries []logEntry }
		v2 = decode[struct{ Logs, LogEntries []logEntry }](w.T, w.want(200, "GET", "/v2/sandboxes/"+id+"/logs?direction=backward&limit=2&search=sandbox", ""))
		v1 = decode[struct{ Logs, LogEntries []logEntry }](w.T, w.want(200, "GET", "/sandboxes/"+id+"/logs?start=0", ""))
		if len(v2.Logs) != 2 || v2.Logs[0].Message != "sandbox paused" || v2.Logs[1].Message != "sandbox resumed" || v2.Logs[0].Level != "info" {
			t.Errorf("got logs %+v", v2)
		}
		if len(v1.Logs) != 6 || v1.Logs[0].Line != `{"level":"info","logger":"execbroker","message":"sandbox created"}` || len(v1.LogEntries) != 6 || v1.LogEntries[5].Message != "sandbox paused" {
			t.Errorf("got logs %+v", v1)
		}
		for _, q := range []string{"limit=1001", "limit=x", "cursor=-1", "direction=up"} {
			w.want(400, "GET", "/v2/sandboxes/"+id+"/logs?"+q, "")
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := w.state(id); got != "gone" {
			t.Errorf("got %s when the time of a paused sandbox is over", got)
		}
		w.want(404, "POST", "/v2/sandboxes/"+id+"/connect", "")
	})
}

func TestAutoResume(t *testing.T) {
	bubble(t, fake.Options{}, Config{}, func(w world) {
		id := w.create(`"timeout": 60, "autoPause": true, "autoResume": {"enabled": true}`).SandboxID
		if l := w.detail(id).Lifecycle; *l != (lifecycle{AutoResume: true, OnTimeout: onTimeoutPause}) {
			t.Errorf("got %+v", l)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if got := w.state(id); got != statePaused {
			t.Errorf("got %s", got)
		}
		w.want(204, "GET", "/health", "", at(id, envdPort)...)
		if d := w.detail(id); d.State != stateRunning || time.Until(d.EndAt) != time.Minute {
			t.Errorf("got %+v", d)
		}
	})
}

// A paused sandbox whose server was killed is ended by the backend, soon after its time.
func TestPausedWithoutServer(t *testing.T) {
	bubble(t, fake.Options{}, Config{PausedTTL: 10 * time.Minute}, func(w world) {
		id := w.create(`"timeout": 3600`).SandboxID
		w.want(204, "POST", "/sandboxes/"+id+"/pause", "")
		if got, want := time.Until(w.s.lookup(id).session.Info().Expires), 10*time.Minute+spare; got != want {
			t.Errorf("the backend ends it in %v, want %v", got, want)
		}
	})
}

func TestOnPause(t *testing.T) {
	bubble(t, fake.Options{}, Config{OnPause: PauseKill}, func(w world) {
		id := w.create("").SandboxID
		w.want(204, "POST", "/sandboxes/"+id+"/pause", "")
		if got := w.state(id); got != "gone" {
			t.Errorf("kill: got %s", got)
		}
		id = w.create(`"timeout": 60, "autoPause": true`).SandboxID
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.state(id); got != "gone" {
			t.Errorf("kill: got %s when its time is over", got)
		}
	})
	w := newWorld(t, fake.Options{}, Config{OnPause: PauseRefuse})
	id := w.create("").SandboxID
	w.want(501, "POST", "/sandboxes/"+id+"/pause", "")
	w.want(501, "POST", "/v2/sandboxes", `{"templateID": "base", "autoPause": true}`)
	w.want(501, "POST", "/v2/sandboxes/"+id+"/connect", `{"autoPause": true}`)
	if got := w.state(id); got != stateRunning {
		t.Errorf("refuse: got %s", got)
	}
}

// suspending is a backend that puts sandboxes aside, or fails to.
type suspending struct {
	executor.Executor
	err   error
	calls int
}

func (s *suspending) Info() executor.Info {
	i := s.Executor.Info()
	i.Suspends = true
	return i
}

func (s *suspending) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	b, err := s.Executor.Create(ctx, spec)
	return suspended{b, s}, err
}

type suspended struct {
	executor.Session
	x *suspending
}

func (s suspended) As(target any) bool {
	if p, ok := target.(*executor.Suspender); ok {
		*p = s
		return true
	}
	return executor.As(s.Session, target)
}

func (s suspended) Suspend(context.Context) error {
	s.x.calls++
	return s.x.err
}

func TestPauseSuspends(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		state  string
	}{
		"suspended":   {nil, 204, statePaused},
		"busy":        {fail(executor.ErrBusy), 204, statePaused},
		"too-large":   {fail(executor.ErrUnsupported), 204, statePaused},
		"unavailable": {fail(executor.ErrUnavailable), 503, stateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, fake.Options{}, Config{OnPause: PauseRefuse}, func(w world) { // which is for other backends
				x := &suspending{Executor: w.s.x, err: c.err}
				w.s.x = x
				id := w.create("").SandboxID
				w.want(c.status, "POST", "/sandboxes/"+id+"/pause", "")
				if got := w.state(id); got != c.state || (x.calls > 1) != (name == "busy") {
					t.Errorf("got %s after %d calls, want %s", got, x.calls, c.state)
				}
			})
		})
	}
}
