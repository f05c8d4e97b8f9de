package e2b

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// cutter breaks answers at a path off when a budget is spent. A budget below zero is endless; all
// answers share it.
type cutter struct {
	w           *world
	left, spent atomic.Int64
	orderly     atomic.Bool // the connection ends as if all had been said
	finish      string      // what is written at that end
}

// cutter is between the backend and a path.
func (w *world) cutter(path string) *cutter {
	c := &cutter{w: w}
	c.left.Store(-1)
	w.between(func(rw http.ResponseWriter, r *http.Request, next http.Handler) (done bool) {
		if r.URL.Path != path {
			return false
		}
		done = true
		defer func() {
			if e := recover(); e != nil && (e != http.ErrAbortHandler || !c.orderly.Load()) {
				panic(e)
			}
		}()
		next.ServeHTTP(&budgeted{rw, c}, r)
		return true
	})
	return c
}

// budgeted is an answer that a cutter may break off.
type budgeted struct {
	http.ResponseWriter
	c *cutter
}

func (b *budgeted) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *budgeted) Flush() { _ = http.NewResponseController(b.ResponseWriter).Flush() }

func (b *budgeted) Write(p []byte) (int, error) {
	left := b.c.left.Load()
	if left < 0 || int64(len(p)) < left {
		n, err := b.ResponseWriter.Write(p)
		b.c.spent.Add(int64(n))
		if left >= 0 {
			b.c.left.Add(int64(-n))
		}
		return n, err
	}
	_, _ = b.ResponseWriter.Write(p[:left]) // whoever is gone misses nothing
	_, _ = io.WriteString(b.ResponseWriter, b.c.finish)
	b.Flush()
	b.c.left.Store(-1)
	panic(http.ErrAbortHandler)
}

// counting is code that adds 1 to n.
const counting = "n += 1\nprint('ran', n)\nn"

// size returns how many bytes answer a run of it, in a session where n is 0 from then on.
func (c *cutter) size(s executor.Session) int64 {
	c.w.Helper()
	c.w.run(s, "n = 0")
	before := c.spent.Load()
	c.w.run(s, counting)
	size := c.spent.Load() - before
	if size < 50 {
		c.w.Fatalf("a run takes %d bytes only", size)
	}
	return size
}

// after breaks the answer to a run off after so many bytes, and judges what is said of it. It
// reports whether that was an error.
func (c *cutter) after(s executor.Session, n int64) bool {
	c.w.Helper()
	was := c.w.count(s)
	c.left.Store(n)
	o := c.w.run(s, counting)
	c.left.Store(-1)
	if o.err == nil {
		c.w.run(s, "pass") // the break was behind the answer, if there was one: a call may have to find it
	}
	judge(c.w, fmt.Sprintf("after %d bytes, orderly %t", n, c.orderly.Load()), o, was, c.w.count(s))
	return o.err != nil
}

const startPath = "/process.Process/Start"

// A connection may break anywhere in the stream of a run: between its frames and within them. The
// error says truly whether the code has run, the code never runs twice, and the next call reaches
// the sandbox again.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, s := w.cutter(startPath), w.session()
	size := c.size(s)
	offsets := []int64{}
	for n := int64(0); n < size; n += max(1, size/40) {
		offsets = append(offsets, n)
	}
	errs := 0
	for _, n := range append(offsets, size-2, size-1) {
		if c.after(s, n) {
			errs++
		}
	}
	if errs < len(offsets)/2 {
		t.Errorf("only %d of %d runs broke off", errs, len(offsets))
	}
}

// judge compares what was said of a run that adds 1 with what it did.
func judge(t testing.TB, what string, o outcome, was, now string) {
	t.Helper()
	a, _ := strconv.Atoi(was)
	b, _ := strconv.Atoi(now)
	ran := b - a
	if ran < 0 || ran > 1 {
		t.Errorf("%s: it ran %d times", what, ran)
	}
	if o.err == nil {
		if o.res.Status != executor.StatusOK || ran != 1 {
			t.Errorf("%s: got %+v, and it ran %d times", what, o.res, ran)
		}
		return
	}
	var e *executor.Error
	if !errors.As(o.err, &e) || e.Kind != executor.ErrUnavailable {
		t.Errorf("%s: got %v, want %v", what, o.err, executor.ErrUnavailable)
		return
	}
	switch {
	case e.Ran == executor.RanNo && ran != 0, e.Ran == executor.RanYes && ran != 1, o.started && e.Ran != executor.RanYes:
		t.Errorf("%s: got %v, Ran %v, started %t, and it ran %d times", what, o.err, e.Ran, o.started, ran)
	case e.Ran != executor.RanNo && o.res != nil && o.res.Status != executor.StatusLost:
		t.Errorf("%s: got the status %v", what, o.res.Status)
	}
}

// The official SDK takes a stream that ends in good order, but without saying how the code ended,
// for success.
func TestTruncatedInGoodOrderIsNoSuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, s := w.cutter(startPath), w.session()
	c.finish = "\x02\x00\x00\x00\x02{}"
	c.orderly.Store(true)
	c.size(s)
	if !c.after(s, 0) {
		t.Error("got a result, want an error")
	}
}

// sendPath is what input goes to.
const sendPath = "/process.Process/SendInput"

// What answers the request that carries a run decides what is known of the run. Nothing is sent
// twice, but for what a limit of rates has refused to let through.
func TestAnswersToInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Timeout = driver.Duration(20 * time.Second) }) // what "stall" takes
	s := w.session()
	w.run(s, "n = 0")
	reply := func(status int, body string, header ...string) func(http.ResponseWriter) {
		return func(rw http.ResponseWriter) {
			for i := 0; i+1 < len(header); i += 2 {
				rw.Header().Set(header[i], header[i+1])
			}
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, body)
		}
	}
	for _, c := range []struct {
		name    string
		deliver bool // before the answer
		answer  func(http.ResponseWriter)
		fine    bool // the run is done all the same
	}{
		{"429-retry-after", false, reply(429, `{"sandboxId":"i","message":"slow down","code":429}`, "Retry-After", "1"), true},
		{"429-connections", false, reply(429, `{"sandboxId":"i","message":"too many concurrent incoming connections (limit: 1)","code":429}`), true},
		{"409-between-states", false, reply(409, `{"sandboxId":"i","message":"sandbox is still transitioning","code":409}`), true},
		{"500", false, reply(500, `{"code":500,"message":"x"}`), false},
		{"500-delivered", true, reply(500, `{"code":500,"message":"x"}`), false},
		{"502-port", false, reply(502, `{"sandboxId":"i","message":"The sandbox is running but port is not open","port":49983,"code":502}`), true},
		{"502-not-found", false, reply(502, `{"sandboxId":"i","message":"The sandbox was not found","code":502}`), false},
		{"502-text", true, reply(502, "Failed to route request to sandbox"), false},
		{"502-html", false, reply(502, "<html></html>", "Content-Type", "text/html"), false},
		{"503", false, reply(503, ""), false},
		{"504", true, reply(504, "upstream request timeout"), false},
		{"200-html", false, reply(200, "<html></html>", "Content-Type", "text/html"), false},
		{"garbage", true, reply(200, "\xff\xfe\x00", "Content-Type", "application/proto"), false},
		{"cut", false, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false},
		{"cut-delivered", true, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, false},
		{"stall", false, nil, false}, // until the client gives up
		{"long-line", false, func(rw http.ResponseWriter) {
			rw.WriteHeader(502)
			_, _ = io.WriteString(rw, strings.Repeat("x", 16<<20)) // the client has left
		}, false},
	} {
		was := w.count(s)
		var once atomic.Bool
		w.between(func(rw http.ResponseWriter, r *http.Request, next http.Handler) bool {
			if r.URL.Path != sendPath || !once.CompareAndSwap(false, true) {
				return false
			}
			if c.deliver {
				next.ServeHTTP(nowhere{http.Header{}}, r)
			} else {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			if c.answer == nil {
				<-r.Context().Done()
				return true
			}
			c.answer(rw)
			return true
		})
		o := w.run(s, "n += 1")
		w.hook.Store(nil)
		if !once.Load() {
			t.Fatalf("%s: the fault did not happen", c.name)
		}
		if c.fine != (o.err == nil) && !(c.deliver && o.err == nil) { // the run may have ended before the answer came
			t.Errorf("%s: got %+v, %v", c.name, o.res, o.err)
		}
		judge(t, c.name, o, was, w.count(s))
	}
}

// nowhere takes an answer that nobody gets.
type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

// A connection that is there and says nothing, not even that the stream lives, is given up.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.b.service.ping = 3 * time.Second // what lives is heard within 14 s, on a busy machine as well
	var mute atomic.Bool
	w.between(func(rw http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if r.URL.Path != startPath {
			return false
		}
		next.ServeHTTP(&muted{rw, &mute}, r)
		return true
	})
	s := w.session()
	w.run(s, "n = 0")
	mute.Store(true)
	o := w.run(s, "n += 1")
	mute.Store(false)
	if o.err == nil || !strings.Contains(o.err.Error(), errSilent.Error()) {
		t.Errorf("got %+v, %v", o.res, o.err)
	}
	judge(t, "silence", o, "0", w.count(s))
}

// muted swallows what it is given while it is mute.
type muted struct {
	http.ResponseWriter
	mute *atomic.Bool
}

func (m *muted) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *muted) Flush() { _ = http.NewResponseController(m.ResponseWriter).Flush() }

func (m *muted) Write(p []byte) (int, error) {
	if m.mute.Load() {
		return len(p), nil
	}
	return m.ResponseWriter.Write(p)
}

// The official SDK decodes each piece by itself, and makes three of one letter that two pieces
// share. Lines may be as long as they like.
func TestLettersAcrossPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 6 << 20 // letters of three bytes: one line of 18 MB
	s, err := w.x.Create(t.Context(), executor.Spec{Run: executor.RunLimits{OutputBytes: 64 << 20, WallTime: 5 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := 0
	res, err := s.Run(t.Context(), executor.Request{Code: fmt.Sprintf("print('渐' * %d)", n), Keep: -1}, func(e executor.Event) error {
		if e.Kind == executor.EventStdout && strings.Trim(string(e.Data), "渐\n") != "" {
			t.Errorf("a letter was torn")
		}
		got += len(e.Data)
		return nil
	})
	if err != nil || res.Status != executor.StatusOK || got != 3*n+1 {
		t.Errorf("got %d bytes, %+v, %v", got, res, err)
	}
}
