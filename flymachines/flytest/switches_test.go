package flytest

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// post sends a create with a name and returns the status, or 0 if the connection was cut.
func (f *emulator) post(name string, edit ...func(map[string]any)) int {
	f.t.Helper()
	return f.code("POST", "/machines", `{"name":"`+name+`","skip_launch":true,"config":`+encode(f.t, config(idle, edit...))+`}`)
}

// code sends a request and returns the status of the answer, or 0 if there was none.
func (f *emulator) code(method, path, body string) int {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+"/v1/apps/"+testApp+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.Token())
	res, err := f.client().Do(r)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0
	}
	if err != nil {
		f.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// names returns the names of the Machines that there are.
func (f *emulator) names() (names []string) {
	f.t.Helper()
	var list []machineJSON
	f.ask(200, "GET", "/machines", nil, &list)
	for _, m := range list {
		names = append(names, m.Name)
	}
	return names
}

// A switch of a create happens as often as it says, before or after the effect as it says, and not once it is off.
func TestSwitchesOfCreate(t *testing.T) {
	t.Parallel()
	f := begin(t)
	for _, c := range []struct {
		sw     Switch
		status int
		done   bool
	}{
		{CreateTimesOut(), 408, true}, {NameTaken(), 409, true}, {NoCandidate("iad"), 422, false}, {NoCapacity("iad"), 409, false},
		{OverQuota(), 403, false}, {RateLimited(0, OpCreate), 429, false}, {BadGateway(OpCreate), 502, false}, {BadGatewayAfter(OpCreate), 502, true},
		{Unavailable(OpCreate), 503, false}, {UnavailableAfter(OpCreate), 503, true}, {Cut(OpCreate), 0, false}, {CutAfter(OpCreate), 0, true},
		{Answer(500, "", OpCreate), 500, false}, {AnswerAfter(200, "", OpCreate), 200, true},
	} {
		t.Run(c.sw.String(), func(t *testing.T) {
			off := f.Switch(c.sw.Times(1))
			if got := f.post(c.sw.String()); got != c.status {
				t.Errorf("got %d, want %d", got, c.status)
			}
			if got := slices.Contains(f.names(), c.sw.String()); got != c.done {
				t.Errorf("created: got %v, want %v", got, c.done)
			}
			if got := f.post("second-" + c.sw.String()); got != 200 {
				t.Errorf("the second create: got %d", got)
			}
			off()
			off()
			on := f.Switch(c.sw)
			on()
			if got := f.post("off-" + c.sw.String()); got != 200 {
				t.Errorf("when it is off: got %d", got)
			}
		})
	}
}

// A region without capacity is passed over for the next of the expression.
func TestRegions(t *testing.T) {
	t.Parallel()
	f := begin(t)
	defer f.Switch(NoCandidate("lhr", "fra"))()
	for expression, want := range map[string]string{"lhr,nrt": "nrt", "eu,syd": "syd", "any": "iad", "nrt": "nrt", "": "iad"} {
		var m machineJSON
		f.ask(200, "POST", "/machines", map[string]any{"region": expression, "skip_launch": true, "config": config(idle)}, &m)
		if m.Region != want {
			t.Errorf("%q: got %s, want %s", expression, m.Region, want)
		}
	}
	f.ask(422, "POST", "/machines", map[string]any{"region": "lhr,fra", "config": config(idle)}, nil)
	f.ask(400, "POST", "/machines", map[string]any{"region": "moon", "config": config(idle)}, nil)
}

// Machines that are stuck stay so until somebody lets go of them or destroys them by force.
func TestStuck(t *testing.T) {
	t.Parallel()
	f := begin(t)
	for _, c := range []struct {
		sw    Switch
		act   string // on a Machine that runs; empty: it is created stuck
		state string
		then  string
	}{
		{SlowPull(0), "", stateCreated, stateStarted}, {StuckStarting(), "", stateStarting, stateStarted},
		{StuckStopping(), "/stop", stateStopping, stateStopped}, {StuckDestroying(), "?force=true", stateDestroying, stateDestroyed},
	} {
		for _, freed := range []bool{true, false} {
			if c.state == stateDestroying && !freed {
				continue
			}
			var m machineJSON
			var off func()
			if c.act == "" {
				off = f.Switch(c.sw)
				f.ask(200, "POST", "/machines", map[string]any{"config": config(idle)}, &m)
			} else {
				m = f.machine(config(idle))
				off = f.Switch(c.sw)
				method := map[bool]string{true: "POST", false: "DELETE"}[c.act[0] == '/']
				f.ask(200, method, "/machines/"+m.ID+c.act, nil, nil)
			}
			if got := f.ask(408, "GET", "/machines/"+m.ID+"/wait?timeout=1&state=settled", nil, nil); !strings.Contains(got, "currently "+c.state) {
				t.Errorf("%v: got %s, want %s", c.sw, got, c.state)
			}
			if freed {
				off()
				f.until(m.ID, c.then)
				continue
			}
			f.ask(200, "DELETE", "/machines/"+m.ID+"?force=true", nil, nil)
			f.until(m.ID, stateDestroyed)
			off()
		}
	}
}

// What is known of a Machine may lag behind, at its beginning and at its end.
func TestLag(t *testing.T) {
	t.Parallel()
	f := begin(t)
	defer f.Switch(NotFoundAfterCreate(2))()
	defer f.Switch(DestroyingAfterWait(1))()
	var m machineJSON
	f.ask(200, "POST", "/machines", map[string]any{"config": config(idle)}, &m)
	f.ask(404, "GET", "/machines/"+m.ID, nil, nil)
	f.ask(404, "GET", "/machines/"+m.ID+"/wait", nil, nil)
	f.until(m.ID, stateStarted)
	f.ask(200, "DELETE", "/machines/"+m.ID+"?kill=true", nil, nil)
	f.until(m.ID, stateDestroyed)
	if first, second := f.see(m.ID).State, f.see(m.ID).State; first != stateDestroying || second != stateDestroyed {
		t.Errorf("got %s, then %s", first, second)
	}
}

// exitOf waits for the end of a Machine and returns its exit event.
func (f *emulator) exitOf(id string) *exitEvent {
	f.t.Helper()
	f.until(id, stateStopped, stateDestroyed)
	for _, e := range f.see(id).Events {
		if e.Type == "exit" {
			return e.Request.ExitEvent
		}
	}
	f.t.Fatal("there is no exit event")
	return nil
}

// A Machine may be killed from outside, run out of memory for a test or in earnest, or lose its host.
func TestTerminations(t *testing.T) {
	t.Parallel()
	f := begin(t)
	m := f.machine(config(idle))
	if err := f.Kill(t.Context(), testApp, m.ID); err != nil {
		t.Fatal(err)
	}
	if e := f.exitOf(m.ID); e.ExitCode != 137 || e.OOMKilled || e.RequestedStop {
		t.Errorf("killed: got %+v", e)
	}
	m = f.machine(config(idle))
	if err := f.OutOfMemory(t.Context(), testApp, m.ID); err != nil {
		t.Fatal(err)
	}
	if e := f.exitOf(m.ID); e.ExitCode != 137 || !e.OOMKilled {
		t.Errorf("out of memory for a test: got %+v", e)
	}
	var hog machineJSON
	f.ask(200, "POST", "/machines", map[string]any{"config": config(`exec python3 -c 'x = []
while True: x.append(bytearray(1 << 24))'`)}, &hog)
	if e := f.exitOf(hog.ID); e.ExitCode != 137 || !e.OOMKilled {
		t.Errorf("out of memory: got %+v", e)
	}
	m = f.machine(config(idle, with("metadata", map[string]string{"a": "b"})))
	revive, err := f.DeadHost(testApp, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.see(m.ID); got.Config != nil || got.HostStatus != "unreachable" || len(got.IncompleteConfig["metadata"]) == 0 {
		t.Errorf("dead host: got %+v", got)
	}
	f.ask(408, "DELETE", "/machines/"+m.ID+"?force=true", nil, nil)
	revive()
	f.ask(200, "DELETE", "/machines/"+m.ID+"?force=true", nil, nil)
	if err := f.Kill(t.Context(), testApp, "none"); err == nil {
		t.Error("killed what is not there")
	}
}

// Requests beyond Fly's rates are refused, for each method and Machine by itself. Releases never are.
func TestRates(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		op    Op
		rate  float64
		burst int
	}{{OpCreate, 1, 3}, {OpGet, 1, 10}, {OpCreate, 10, 30}, {OpList, 0.1, 1}} {
		l := newLimiter(c.rate)
		n := 0
		for ; n < 1000 && l.take(c.op, string(c.op), "a", now); n++ {
		}
		if n != c.burst || !l.take(c.op, string(c.op), "b", now) || !l.take(OpStop, "stop", "a", now) {
			t.Errorf("%s times %v: got %d at once, want %d", c.op, c.rate, n, c.burst)
		}
		if again := now.Add(time.Duration(float64(time.Second) / c.rate)); !l.take(c.op, string(c.op), "a", again) {
			t.Errorf("%s times %v: refused after a second", c.op, c.rate)
		}
	}
	for l, n := newLimiter(1), 0; n < 100; n++ {
		if !l.take(OpRelease, "DELETE lease", "a", now) {
			t.Fatalf("the release of a lease is refused after %d", n)
		}
	}
	f := begin(t, func(c *Config) { c.Rate = 1 })
	got := map[int]int{}
	for range 20 {
		got[f.code("GET", "/machines", "")]++
	}
	if got[200] < 3 || got[429] == 0 {
		t.Errorf("got %v", got)
	}
}
