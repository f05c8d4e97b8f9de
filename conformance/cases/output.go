package cases

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// outputCases are about what code writes.
func outputCases() []Case {
	return []Case{
		{
			ID: "output/stdout", PerLanguage: true, Programs: []string{"print"},
			Doc: "What code writes to stdout is in Result.Stdout, byte by byte, and nowhere else.",
			Positive: func(t *T) {
				const want = "to stdout: naïve 渐 😀 \u2028 end\n"
				t.writes(t.Shared(), t.Program("print", "text", strings.TrimSuffix(want, "\n")), want, "")
			},
		},
		{
			ID: "output/stderr", PerLanguage: true, Programs: []string{"print-err"},
			Doc: "What code writes to stderr is in Result.Stderr and nowhere else.",
			Positive: func(t *T) {
				t.writes(t.Shared(), t.Program("print-err", "text", "to stderr"), "", "to stderr\n")
			},
		},
		{
			ID: "output/both", PerLanguage: true, Programs: []string{"alternate"},
			Doc: "Stdout and stderr are told apart, and each keeps its order.",
			Positive: func(t *T) {
				t.writes(t.Shared(), t.Program("alternate"), "out 1\nout 2\nout 3\nout 4\nout 5\n", "err 1\nerr 2\nerr 3\nerr 4\nerr 5\n")
			},
		},
		{
			ID: "output/none", PerLanguage: true,
			Doc: "Empty code runs, writes nothing and ends with exit code 0.",
			Positive: func(t *T) {
				res := t.writes(t.Shared(), executor.Request{Language: t.Language()}, "", "")
				if res.ExitCode != 0 || len(res.Outputs) > 0 {
					t.Errorf("got %s and %d outputs, want exit code 0 and none", describe(res), len(res.Outputs))
				}
			},
		},
		{
			ID: "output/unterminated", PerLanguage: true, Programs: []string{"write"},
			Doc: "Text without the end of a line is output too.",
			Positive: func(t *T) {
				res, events := t.events(t.Shared(), t.Program("write", "text", "tail"))
				want := "tail"
				if t.Language() != executor.Python && string(res.Stdout) == "tail\n" {
					want = "tail\n" // the description of the program allows it
				}
				streams(t, res, events, want, "")
			},
		},
		{
			ID: "output/binary", PerLanguage: true, Programs: []string{"write-bytes"},
			Doc: "Output may hold any bytes, and none of them changes.",
			Positive: func(t *T) {
				all := make([]byte, 256)
				for i := range all {
					all[i] = byte(i)
				}
				writesBytes(t, t.Shared(), all)
			},
		},
		{
			ID: "output/half-character", PerLanguage: true, Programs: []string{"write-bytes"},
			Doc: "A character that is cut off by the end of the code, or never was one, is passed on as it is.",
			Positive: shared(func(t *T, s executor.Session) {
				writesBytes(t, s, []byte("cut off \xe6\xb8"))
				writesBytes(t, s, []byte("\xff"), []byte("\xe6"), []byte("a\x80\xbf"))
			}),
		},
		{
			ID: "output/split-character", PerLanguage: true, Programs: []string{"write-bytes"},
			Doc: "No event ends within a character that goes on in the next one of its stream, however the code writes it.",
			Positive: func(t *T) {
				events := writesBytes(t, t.Shared(), []byte("\xe6"), []byte("\xb8"), []byte("\x90\xf0\x9f"), []byte("\x98"), []byte("\x80."))
				for _, ev := range events {
					if !utf8.Valid(ev.Data) {
						t.Errorf("the event %d ends within a character: %q", ev.Seq, ev.Data)
					}
				}
			},
		},
		{
			ID: "output/long-line", PerLanguage: true, Programs: []string{"repeat"},
			Doc: "A line of a mebibyte arrives whole.",
			Positive: func(t *T) {
				const unit = "0123456789abcdef"
				t.writes(t.Shared(), keeping(t.Program("repeat", "text", unit, "count", 1<<16), 4<<20), strings.Repeat(unit, 1<<16)+"\n", "")
			},
		},
		{
			ID: "output/bulk", PerLanguage: true, Programs: []string{"repeat"},
			Doc: "A single write of 24 MiB arrives whole, within a limit that allows it.",
			Positive: func(t *T) {
				const unit, count = "0123456789abcdef", 24 << 16
				s := t.Session(writing(32<<20), func(spec *executor.Spec) { spec.Run.WallTime = t.longest(patient) })
				keepsEnds(t, s, keeping(t.Program("repeat", "text", unit, "count", count), 100), strings.Repeat(unit, count)+"\n")
			},
		},
		{
			ID: "output/many-lines", PerLanguage: true, Programs: []string{"lines"},
			Doc: "Ten thousand lines arrive in order and without a gap.",
			Positive: func(t *T) {
				t.writes(t.Shared(), t.Program("lines", "count", 10000), numbered(10000), "")
			},
		},
		{
			ID: "output/crash", PerLanguage: true, Programs: []string{"lines-die"},
			Doc: "All that code has written before it kills its interpreter is in the result.",
			Positive: shared(func(t *T, s executor.Session) {
				res := t.Run(s, limited(t.Program("lines-die", "count", 1000), 20*time.Second))
				// The language's runtime may add its last words.
				if !strings.HasPrefix(string(res.Stdout), numbered(1000)) {
					t.Errorf("got %s, want a thousand lines", excerpt(string(res.Stdout)))
				}
			}),
		},
		{
			ID: "output/keep", PerLanguage: true, Programs: []string{"lines", "repeat"},
			Doc: "Request.Keep cuts the Result in the middle, between characters, and says where and how much; events are not cut.",
			Positive: shared(func(t *T, s executor.Session) {
				req := keeping(t.Program("lines", "count", 2000), 1000)
				keepsEnds(t, s, req, numbered(2000))
				req = keeping(t.Program("repeat", "text", "渐", "count", 1000), 100)
				keepsEnds(t, s, req, strings.Repeat("渐", 1000)+"\n")
				req.Keep = -1
				keepsEnds(t, s, req, strings.Repeat("渐", 1000)+"\n")
			}),
		},
		{
			ID: "output/limit", PerLanguage: true, Programs: []string{"flood", "print"},
			Doc: "Reaching OutputBytes stops the code with ReasonOutput, and what was written until then is kept.",
			Positive: func(t *T) {
				const limit = 64 << 10
				s := t.Shared()
				req := bounded(limited(t.Program("flood"), 20*time.Second), limit)
				start := time.Now()
				res, events := t.events(s, req)
				t.prompt("stopping the flood", start, 10*time.Second)
				t.ended(res, executor.StatusKilled, executor.ReasonOutput)
				got := text(events, executor.EventStdout)
				if len(got) > limit || len(got) < limit/2 {
					t.Errorf("got %d bytes of events, want at most the limit of %d and not much less", len(got), limit)
				}
				if want := strings.Repeat(strings.Repeat("x", 999)+"\n", limit/1000+1); !strings.HasPrefix(want, got) {
					t.Errorf("got %s, want the beginning of the flood", excerpt(got))
				}
				t.says(s, t.Program("print", "text", "next"), "next")
			},
		},
		{
			ID: "output/limit-scope", PerLanguage: true, Programs: []string{"repeat", "alternate"},
			Doc: "OutputBytes counts all outputs together; a run may write up to that of its session, and a tighter limit of one run does not stay.",
			Positive: func(t *T) {
				s := t.Session(writing(1 << 20))
				t.ends(s, bounded(t.Program("repeat", "text", "x", "count", 5000), 1000), executor.StatusKilled, executor.ReasonOutput)
				t.ok(s, t.Program("repeat", "text", "x", "count", 1<<20-1))
				t.ends(s, t.Program("repeat", "text", "x", "count", 1<<20+1), executor.StatusKilled, executor.ReasonOutput)
				both := bounded(t.Program("alternate"), 40) // of 30 bytes on each stream
				t.ends(s, both, executor.StatusKilled, executor.ReasonOutput)
				both.Limits.OutputBytes = 60
				t.ok(s, both)
			},
		},
		{
			ID: "output/slow-reader", PerLanguage: true, Programs: []string{"flood"}, Alone: true,
			Doc:      "While emit works, the memory of the host stays bounded, however much the code writes.",
			Positive: slowReader,
		},
		{
			ID: "output/late", PerLanguage: true, Programs: []string{"late", "nap", "pause"},
			Doc: "What code that was left running prints after its run is dropped, and never counted to a later run.",
			Positive: fresh(func(t *T, s executor.Session) {
				t.says(s, leaving(t.Program("late", "ms", 300)), "left")
				wait := "nap"
				if t.Has(executor.FeatureTopLevelAwait) {
					wait = "pause" // lets timers and tasks go on
				}
				t.says(s, t.Program(wait, "ms", 900), "begin\nend")
			}),
		},
	}
}

// streams checks that code ended without an error and what it wrote, in the Result and in the
// events.
func streams(t *T, res *executor.Result, events []executor.Event, stdout, stderr string) {
	if res.Status != executor.StatusOK {
		t.Fatalf("got %s, want ok", describe(res))
	}
	noneOf(t, "gaps in output that fits", res.Dropped)
	for _, stream := range []struct{ name, got, want string }{
		{"stdout of the result", string(res.Stdout), stdout},
		{"stderr of the result", string(res.Stderr), stderr},
		{"stdout of the events", text(events, executor.EventStdout), stdout},
		{"stderr of the events", text(events, executor.EventStderr), stderr},
	} {
		if stream.got != stream.want {
			t.Errorf("%s: got %s, want %s", stream.name, excerpt(stream.got), excerpt(stream.want))
		}
	}
}

// writes runs req in s and checks it as streams does.
func (t *T) writes(s executor.Session, req executor.Request, stdout, stderr string) *executor.Result {
	res, events := t.events(s, req)
	streams(t, res, events, stdout, stderr)
	return res
}

// writesBytes checks that a program which writes chunks of bytes is seen to write just these, and
// returns the events of stdout.
func writesBytes(t *T, s executor.Session, chunks ...[]byte) []executor.Event {
	const digits = "0123456789abcdef"
	var words []string
	for _, c := range chunks {
		var w strings.Builder
		for _, b := range c {
			w.WriteByte(digits[b>>4])
			w.WriteByte(digits[b&15])
		}
		words = append(words, w.String())
	}
	res, events := t.events(s, t.Program("write-bytes", "chunks", strings.Join(words, " ")))
	if t.Language() != executor.Python && string(res.Stdout) == "text only\n" {
		t.Logf("%s has no way to write bytes here", t.Language())
		return nil
	}
	streams(t, res, events, string(bytes.Join(chunks, nil)), strings.Repeat("x\n", len(chunks)))
	return slices.DeleteFunc(events, func(ev executor.Event) bool { return ev.Kind != executor.EventStdout })
}

// numbered returns what the program "lines" prints.
func numbered(count int) string {
	var b strings.Builder
	for i := 1; i <= count; i++ {
		b.WriteString("line ")
		b.WriteString(strconv.Itoa(i))
		b.WriteByte('\n')
	}
	return b.String()
}

// keepsEnds checks a Result whose stdout was cut against the whole of it.
func keepsEnds(t *T, s executor.Session, req executor.Request, whole string) {
	res, events := t.events(s, req)
	if res.Status != executor.StatusOK {
		t.Fatalf("Keep %d: got %s, want ok", req.Keep, describe(res))
	}
	if got := text(events, executor.EventStdout); got != whole {
		t.Errorf("Keep %d: events are cut: got %s, want %d bytes", req.Keep, excerpt(got), len(whole))
	}
	got := string(res.Stdout)
	if len(res.Dropped) != 1 || res.Dropped[0].Stream != executor.EventStdout {
		t.Fatalf("Keep %d: got the gaps %+v, want one in stdout", req.Keep, res.Dropped)
	}
	gap := res.Dropped[0]
	if len(got) > max(req.Keep, 0) || !utf8.ValidString(got) {
		t.Errorf("Keep %d: got %d bytes %s, want at most Keep, cut between characters", req.Keep, len(got), excerpt(got))
	}
	if gap.At < 0 || gap.At > len(got) || gap.Bytes != int64(len(whole)-len(got)) ||
		got[:gap.At] != whole[:gap.At] || !strings.HasSuffix(whole, got[gap.At:]) {
		t.Errorf("Keep %d: the gap %+v does not join %s with the whole of %d bytes", req.Keep, gap, excerpt(got), len(whole))
	}
	if half := max(req.Keep, 0) / 2; gap.At < half-utf8.UTFMax || len(got)-gap.At < half-utf8.UTFMax {
		t.Errorf("Keep %d: got %d bytes of the beginning and %d of the end, want a half each", req.Keep, gap.At, len(got)-gap.At)
	}
}

// slowReader lets a flood of output wait for emit, and looks at the heap meanwhile.
func slowReader(t *T) {
	const (
		limit  = 64 << 20 // of the run: enough for a second of flood
		spare  = 32 << 20 // that the heap may grow by: buffers, and what the garbage collector has not taken yet
		paused = time.Second
	)
	s := t.Session(writing(limit))
	before := heap()
	var most uint64
	var res *executor.Result
	// Short, because a backend that holds everything back until the end does so for that long.
	t.inTime(3*time.Second, func(wall time.Duration) (err error) {
		req := keeping(bounded(limited(t.Program("flood"), wall), limit), 1)
		res, err = s.Run(t.Context(), req, func(ev executor.Event) error {
			if ev.Kind != executor.EventStdout || most > 0 {
				return nil
			}
			// Not a sleep for effect: the point is what happens while this takes its time.
			for end := time.Now().Add(paused); time.Now().Before(end); time.Sleep(paused / 20) {
				most = max(most, heap())
			}
			return errStop
		})
		if err == nil && most == 0 {
			return errors.New("no output has come")
		}
		t.stopped(err)
		return nil
	})
	if res != nil {
		t.Logf("stopped with %s", describe(res))
	}
	if most > before+spare {
		t.Errorf("the heap grew by %d MiB while emit did not return, want at most %d MiB", (most-before)>>20, spare>>20)
	}
}

// heap returns how many bytes of the heap are in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
