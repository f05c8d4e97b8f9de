package pyodide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func TestState(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	first := runCode(t, s, "x = 41")
	second := runCode(t, s, "x + 1")
	if !first.StateFresh || second.StateFresh || first.Cell != 1 || second.Cell != 2 {
		t.Errorf("got fresh %v %v, cells %d %d", first.StateFresh, second.StateFresh, first.Cell, second.Cell)
	}
	if got := string(second.Outputs[0].Data["text/plain"]); got != "42" || !second.Outputs[0].Main {
		t.Errorf("got %q, want 42", got)
	}
	if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
		t.Fatal(err)
	}
	third := runCode(t, s, "x")
	if third.Status != executor.StatusFailed || third.Exception.Type != "NameError" || !third.StateFresh || third.Cell != 1 {
		t.Errorf("after a reset: got %s, fresh %v, cell %d", describeResult(third), third.StateFresh, third.Cell)
	}
}

// All sessions share the contents of the snapshot. Random numbers must differ nevertheless.
func TestRandomIsFresh(t *testing.T) {
	t.Parallel()
	x := open(t, Config{})
	const code = "import random, uuid, secrets, tempfile; print(random.random(), uuid.uuid4(), secrets.token_hex(), tempfile.mktemp())"
	var got [2][]string
	for i := range got {
		got[i] = strings.Fields(output(t, create(t, x, executor.Spec{}), code))
	}
	for i := range got[0] {
		if got[0][i] == got[1][i] {
			t.Errorf("both sessions got %s", got[0][i])
		}
	}
}

// Without the snapshot the hash seed also differs between sessions.
func TestHashSeed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  Config
		same bool
	}{{"snapshot", Config{}, true}, {"no-snapshot", Config{NoSnapshot: true}, false}} {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, c.cfg)
			a := output(t, create(t, x, executor.Spec{}), "print(hash('execbroker'))")
			b := output(t, create(t, x, executor.Spec{}), "print(hash('execbroker'))")
			if (a == b) != c.same {
				t.Errorf("got %q and %q, want the same: %v", a, b, c.same)
			}
		})
	}
}

func TestSurroundings(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{Env: map[string]string{"FROM_SPEC": "1", "BOTH": "spec"}})
	got := output(t, s, `
import os, sys, tempfile, time
print(os.getcwd(), os.environ["HOME"], os.environ["TZ"], os.environ["LANG"], time.strftime("%Z"), tempfile.gettempdir())
print(sorted(k for k in os.environ if k not in ("HOME", "TZ", "LANG", "PATH", "USER", "LOGNAME", "MPLBACKEND")), os.environ["BOTH"], sys.path[0], __name__)
for d in (os.getcwd(), os.environ["HOME"], tempfile.gettempdir()): open(d + "/writable", "w").close()
`, func(r *executor.Request) { r.Env = map[string]string{"FROM_RUN": "2", "BOTH": "run"} })
	want := "/workspace /tmp/home UTC C.UTF-8 UTC /tmp\n['BOTH', 'FROM_RUN', 'FROM_SPEC'] run /workspace __main__\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := output(t, s, "import os; print(os.environ['BOTH'], 'FROM_RUN' in os.environ)"); got != "spec False\n" {
		t.Errorf("after the run: got %q", got)
	}
}

func TestZones(t *testing.T) {
	t.Parallel()
	got := output(t, one(t, executor.Spec{}), `
import datetime, zoneinfo
names = zoneinfo.available_timezones()
winter = {n: datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(n)).utcoffset() for n in names}
print(len(names) > 400, {"UTC", "America/Argentina/Ushuaia", "Etc/GMT+12"} <= names, winter["America/New_York"])
try: zoneinfo.ZoneInfo("Nowhere/Land")
except zoneinfo.ZoneInfoNotFoundError: print("none")
`)
	if want := "True True -1 day, 19:00:00\nnone\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	long := strings.Repeat("0123456789abcde\n", 20_000) // more than a frame and more than the buffer
	for _, c := range []struct {
		name, code, want string
		in               io.Reader
	}{
		{"line", "print('hello', input())", "hello bob\n", strings.NewReader("bob\nrest")},
		{"none", "import sys; print(repr(sys.stdin.read()))", "''\n", nil},
		{"empty", "import sys; print(repr(sys.stdin.read()))", "''\n", strings.NewReader("")},
		{"long", "import sys; print(len(sys.stdin.read()))", "320000\n", strings.NewReader(long)},
		{"bytewise", "import sys; print(sum(1 for l in sys.stdin))", "2\n", io.MultiReader(strings.NewReader("a"), strings.NewReader("\n"), strings.NewReader("b"))},
		{"with-error", "import sys; print(sys.stdin.read())", "ab\n", io.MultiReader(strings.NewReader("ab"), errReader{})},
		{"not-left-over", "import sys; print(repr(sys.stdin.read()))", "''\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := output(t, s, c.code, func(r *executor.Request) { r.Stdin = c.in }); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

// A reader that never returns must not delay a run that has ended or is stopped.
func TestInputThatNeverComes(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	in, feed := io.Pipe()
	defer feed.Close()
	r := runCode(t, s, "input()", within(300*time.Millisecond), func(r *executor.Request) { r.Stdin = in })
	if r.Status != executor.StatusTimedOut || r.StateLost {
		t.Errorf("got %s, lost %v", describeResult(r), r.StateLost)
	}
	if got := output(t, s, "print(1)"); got != "1\n" {
		t.Errorf("got %q", got)
	}
}

// A slow reader of events blocks the code, and neither side buffers more than the window.
func TestBackPressure(t *testing.T) {
	s := one(t, executor.Spec{Run: executor.RunLimits{OutputBytes: 1 << 30}})
	const total = 64 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var got int64
	var peak uint64
	req := executor.Request{Code: fmt.Sprintf("import sys\nfor i in range(%d): sys.stdout.write('x' * 65536)", total/65536), Keep: -1}
	r, err := s.Run(t.Context(), req, func(ev executor.Event) error {
		got += int64(len(ev.Data))
		if got%(4<<20) < 1<<16 {
			runtime.GC()
			runtime.ReadMemStats(&after)
			peak = max(peak, after.HeapAlloc)
		}
		return nil
	})
	if err != nil || r.Status != executor.StatusOK || got != total {
		t.Fatalf("got %d bytes, %v, %+v", got, err, r)
	}
	if more := int64(peak) - int64(before.HeapAlloc); more > 16<<20 {
		t.Errorf("the heap grew by %d bytes", more)
	}
}

func TestOutputArrivesWhileCodeRuns(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	in, feed := io.Pipe()
	defer feed.Close()
	// Each line is printed only after the test has seen the previous one.
	_, err := s.Run(t.Context(), executor.Request{Code: "for i in range(5): print(i, input())", Stdin: in}, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted || ev.Kind == executor.EventStdout && len(ev.Data) > 0 && ev.Data[0] < '4' {
			go fmt.Fprintln(feed, "go") // a pipe has no buffer; the read ends the goroutine
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	r := runCode(t, s, `
class Picture:
    def __repr__(self): return "<picture>"
    def _repr_png_(self): return bytes(range(256)) * 1000
print("before")
display(Picture())
print("between")
{"a": [1, 2.5, None]}`)
	if len(r.Outputs) != 2 || r.Outputs[0].Main || !r.Outputs[1].Main {
		t.Fatalf("got %+v", r.Outputs)
	}
	if png := r.Outputs[0].Data["image/png"]; len(png) != 256_000 || !bytes.Equal(png[:256], png[256:512]) {
		t.Errorf("got a picture of %d bytes", len(png))
	}
	if got := string(r.Outputs[1].Data["application/json"]); got != `{"a": [1, 2.5, null]}` {
		t.Errorf("got %s", got)
	}
}

// A value that exceeds the limit of all output is not collected first.
func TestHugeValue(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{Run: executor.RunLimits{OutputBytes: 1 << 20}})
	r := runCode(t, s, `
state = 1
class Huge:
    def _repr_png_(self): return b"x" * (15 << 20)
Huge()`)
	if r.Status != executor.StatusKilled || r.Reason != executor.ReasonOutput || len(r.Outputs) != 0 {
		t.Errorf("got %s, %d outputs", describeResult(r), len(r.Outputs))
	}
	if got := output(t, s, "print(state)"); got != "1\n" {
		t.Errorf("got %q", got)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	for _, c := range []struct {
		name, code string
		lost       bool
	}{
		{"loop", "n = 1\nprint('on')\nwhile True: pass", false},
		{"stubborn", "print('on')" + stubborn, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := s.Run(ctx, executor.Request{Code: c.code}, func(ev executor.Event) error {
				if ev.Kind == executor.EventStdout {
					cancel()
				}
				return nil
			})
			if !errors.Is(err, context.Canceled) || r == nil || r.Status != executor.StatusCanceled || r.StateLost != c.lost {
				t.Errorf("got %v, %+v", err, r)
			}
			if got := output(t, s, "print(1)"); got != "1\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A panic of the caller's emit stops the code too.
func TestPanicInEmit(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	runCode(t, s, "open('kept', 'w').close()")
	pid := process(t, s)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		s.Run(t.Context(), executor.Request{Code: "print(1)\nwhile True: pass"}, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				panic("out")
			}
			return nil
		})
	}()
	if alive(pid) {
		t.Error("the process lives on")
	}
	if got := output(t, s, "import os; print(os.listdir())"); got != "['kept']\n" {
		t.Errorf("got %q", got)
	}
}

// Code that is left running continues, and its output is dropped.
func TestLateOutput(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	output(t, s, `
import asyncio
ticks = 0
async def background():
    global ticks
    while True:
        await asyncio.sleep(0.005)
        ticks += 1
        print("late", end=("", "\n")[ticks % 2])
task = asyncio.create_task(background())`, atOnce)
	if got := output(t, s, "while ticks < 4: await asyncio.sleep(0.01)\nprint('ticked')"); got != "ticked\n" {
		t.Errorf("got %q", got)
	}
	// What cannot be told from the run in progress belongs to it.
	const called = "import asyncio, js, pyodide.ffi\njs.setTimeout(pyodide.ffi.create_proxy(lambda: print('called')), 1)\nawait asyncio.sleep(0.1)"
	if got := output(t, s, called); got != "called\n" {
		t.Errorf("got %q", got)
	}
	// A timeout stops what its run has started, but not what earlier runs have started.
	runCode(t, s, "await asyncio.sleep(60)", within(100*time.Millisecond))
	if got := output(t, s, "print(task.done())"); got != "False\n" {
		t.Errorf("got %q", got)
	}
}

// Code that is left running and blocks the interpreter is stopped after some time, and sooner if
// another run waits, which then starts.
func TestLeftoversThatBurn(t *testing.T) {
	const burn = `
import asyncio
open("kept", "w").close()
def burn():
    while True: pass
asyncio.get_event_loop().call_later(0.05, burn)`
	for _, waits := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "another-waits"}[waits], func(t *testing.T) {
			t.Parallel()
			s := one(t, executor.Spec{})
			runCode(t, s, burn, within(time.Second), atOnce)
			if waits {
				eventually(t, "the interpreter is taken", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					_, err := s.Files().Stat(ctx, "kept")
					return err != nil
				})
			} else {
				eventually(t, "the process has ended", driverSession(s).h.isDead)
			}
			r := runCode(t, s, "import os; print(os.listdir())")
			if got := string(r.Stdout); got != "['kept']\n" || r.Status != executor.StatusOK || !r.StateFresh {
				t.Errorf("got %s, fresh %v", describeResult(r), r.StateFresh)
			}
		})
	}
}

func TestCodeThatEndsTheInterpreter(t *testing.T) {
	t.Parallel()
	s := one(t, executor.Spec{})
	runCode(t, s, "open('kept', 'w').write('as of the last run')")
	for _, c := range []struct {
		name, code string
		reason     executor.Reason
	}{
		{"abort", "import os; os.abort()", executor.ReasonSandbox},
		{"wild-pointer", "import ctypes; ctypes.string_at(2**31)", executor.ReasonSandbox},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runCode(t, s, "open('lost', 'w').write('x')\nprint('before', flush=True)\n"+c.code)
			if r.Status != executor.StatusKilled || r.Reason != c.reason || !r.StateLost || r.FilesLost || !strings.HasPrefix(string(r.Stdout), "before\n") {
				t.Errorf("got %s, lost %v %v", describeResult(r), r.StateLost, r.FilesLost)
			}
			next := runCode(t, s, "import os; print(os.listdir(), open('kept').read())")
			if got := string(next.Stdout); got != "['kept'] as of the last run\n" || !next.StateFresh {
				t.Errorf("got %q, fresh %v", got, next.StateFresh)
			}
		})
	}
}
