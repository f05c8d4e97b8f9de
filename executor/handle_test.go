package executor_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

var full = executor.Handle{
	Backend: "box", Type: "docker", Session: "s-1", Created: time.Date(2026, 11, 1, 2, 3, 4, 5, time.UTC),
	State:   json.RawMessage(`{"addr":["a",1]}`),
	Run:     executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 7},
	MaxRun:  executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 9},
	IdleTTL: time.Minute, MaxLife: time.Hour, Fence: 3,
	Meta: map[string]string{"router.route": "ü", "router.assigned": ""},
}

func TestHandleText(t *testing.T) {
	for name, h := range map[string]executor.Handle{
		"minimal": {Backend: "b", Type: "t", Session: "s"},
		"full":    full,
	} {
		text := h.String()
		back, err := executor.ParseHandle(text)
		if err != nil || !reflect.DeepEqual(back, h) {
			t.Errorf("%s: got %+v %v, want %+v", name, back, err, h)
		}
		inJSON, err := json.Marshal(map[string]executor.Handle{"h": h})
		if want := `{"h":"` + text + `"}`; err != nil || string(inJSON) != want {
			t.Errorf("%s: got %s %v, want %s", name, inJSON, err, want)
		}
	}
}

func TestHandleFieldsAreSet(t *testing.T) {
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is zero in the test of the text form", v.Type().Field(i).Name)
		}
	}
}

func TestParseHandleRefuses(t *testing.T) {
	text := func(s string) string { return "xb1." + base64.RawURLEncoding.EncodeToString([]byte(s)) }
	const good = `{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z"}`
	if _, err := executor.ParseHandle(text(good)); err != nil {
		t.Fatalf("the base of the test: %v", err)
	}
	for name, in := range map[string]string{
		"empty":           "",
		"prefix-only":     "xb1.",
		"other-version":   "xb2." + text(good)[4:],
		"not-base64":      "xb1.{}",
		"padding":         text(good) + "=",
		"newline":         text(good) + "\n",
		"not-json":        text("x"),
		"empty-object":    text("{}"),
		"null":            text("null"),
		"no-session":      text(`{"b":"b","t":"t","s":"","c":"0001-01-01T00:00:00Z"}`),
		"unknown-field":   text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","z":1}`),
		"other-case":      text(`{"B":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z"}`),
		"repeated":        text(`{"b":"b","t":"t","s":"a","s":"s","c":"0001-01-01T00:00:00Z"}`),
		"trailing":        text(good + good),
		"space":           text(good + " "),
		"control":         text(`{"b":"b","t":"t","s":"s\n","c":"0001-01-01T00:00:00Z"}`),
		"escape":          text(`{"b":"b","t":"t","s":"\u001b[2J","c":"0001-01-01T00:00:00Z"}`),
		"long-session":    text(`{"b":"b","t":"t","s":"` + strings.Repeat("s", 256) + `","c":"0001-01-01T00:00:00Z"}`),
		"negative-fence":  text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","f":-1}`),
		"negative-ttl":    text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","i":-1}`),
		"negative-wall":   text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","r":{"wall_time_ns":-2}}`),
		"negative-output": text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","x":{"output_bytes":-1}}`),
		"empty-meta-key":  text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","m":{"":"x"}}`),
		"huge":            text(`{"b":"b","t":"t","s":"s","c":"0001-01-01T00:00:00Z","d":"` + strings.Repeat("d", 8<<10) + `"}`),
		"megabytes":       "xb1." + strings.Repeat("A", 4<<20),
	} {
		t.Run(name, func(t *testing.T) {
			h, err := executor.ParseHandle(in)
			var e *executor.Error
			if !errors.As(err, &e) || e.Kind != executor.ErrInvalid || e.Ran != executor.RanNo {
				t.Errorf("got %+v and error %v", h, err)
			}
			if len(err.Error()) > 300 {
				t.Errorf("got an error of %d bytes", len(err.Error()))
			}
			if !reflect.DeepEqual(h, executor.Handle{}) {
				t.Errorf("got %+v with the error", h)
			}
		})
	}
}

func TestHandleWithoutText(t *testing.T) {
	for name, c := range map[string]struct {
		h    executor.Handle
		kind error
	}{
		"zero":      {executor.Handle{}, executor.ErrInvalid},
		"bad-state": {executor.Handle{Backend: "b", Type: "t", Session: "s", State: json.RawMessage(`{`)}, executor.ErrInvalid},
		"bad-meta":  {executor.Handle{Backend: "b", Type: "t", Session: "s", Meta: map[string]string{"k": "\xff"}}, executor.ErrInvalid},
		"too-large": {executor.Handle{Backend: "b", Type: "t", Session: "s", Meta: map[string]string{"k": strings.Repeat("v", 8<<10)}}, executor.ErrTooLarge},
	} {
		if _, err := c.h.MarshalText(); !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v, want %v", name, err, c.kind)
		}
		if s := c.h.String(); !strings.HasPrefix(s, "xb1.!") {
			t.Errorf("%s: got %q", name, s)
		}
		if _, err := executor.ParseHandle(c.h.String()); err == nil {
			t.Errorf("%s: its String is a handle", name)
		}
	}
}

// FuzzParseHandle tests that parsing is bounded and that a handle has exactly one text.
func FuzzParseHandle(f *testing.F) {
	f.Add(full.String())
	f.Add(executor.Handle{Backend: "b", Type: "t", Session: "s"}.String())
	f.Add("xb1.e30")
	f.Add("xb1." + base64.RawURLEncoding.EncodeToString([]byte(`{"b":"b","t":"t","s":"s","c":"2026-11-01T00:00:00+01:00","d":[[[[]]]]}`)))
	f.Add("xb1." + base64.RawURLEncoding.EncodeToString([]byte(`{"b":"\ud800","t":"t","s":"s","c":"2026-11-01T00:00:00Z","i":1e3}`)))
	f.Fuzz(func(t *testing.T, in string) {
		h, err := executor.ParseHandle(in)
		if err != nil {
			if !errors.Is(err, executor.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
			return
		}
		if got := h.String(); got != in {
			t.Errorf("got %s, want %s", got, in)
		}
	})
}
