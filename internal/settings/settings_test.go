package settings_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/settings"
)

type inner struct {
	Size  int                `json:"size"`
	Rate  float64            `json:"rate"`
	Names []string           `json:"names"`
	Map   map[string]float64 `json:"map"`
}

type Common struct {
	Image string `json:"image"`
	Over  string `json:"over"`
}

type Linked struct {
	Link string `json:"link"`
}

type outer struct {
	Common
	*Linked
	Over    bool             `json:"over"`
	In      inner            `json:"in"`
	List    []inner          `json:"list"`
	Ptr     *inner           `json:"ptr"`
	Wait    driver.Duration  `json:"wait"`
	Key     driver.Secret    `json:"key"`
	Raw     json.RawMessage  `json:"raw"`
	Any     any              `json:"any"`
	Small   int8             `json:"small"`
	Count   uint             `json:"count"`
	Time    time.Time        `json:"time"`
	Hidden  string           `json:"-"`
	Byte    []byte           `json:"byte"`
	Array   [2]int           `json:"array"`
	Numbers map[int]int      `json:"numbers"`
	Sub     map[string]inner `json:"sub"`
	Handle  level            `json:"level"`
	Plain   string
}

// level has a text form of its own.
type level int

func (l *level) UnmarshalText(text []byte) error {
	if string(text) != "high" {
		return errors.New("want high")
	}
	*l = 9
	return nil
}

func (l level) MarshalText() ([]byte, error) { return []byte("high"), nil }

func TestDecode(t *testing.T) {
	in := `{"image":"x","over":true,"in":{"size":3,"rate":1e3,"names":["a","b"],"map":{"k":1}},"list":[{"size":1},{}],"ptr":{"size":2},
		"wait":"90s","key":{"env":"K"},"raw":{"a":[1]},"any":{"b":2},"small":-5,"count":3,"time":"2026-11-01T00:00:00Z","byte":"aGk=",
		"array":[1,2],"numbers":{"7":8},"sub":{"s":{"size":9}},"level":"high","Plain":"p","link":"l"}`
	var got, want outer
	if err := settings.Decode([]byte(in), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(in), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	before := got
	for _, in := range []string{"", " \n", "null", `{"image":null,"in":null,"list":null,"ptr":null,"wait":null,"key":null}`} {
		if err := settings.Decode([]byte(in), &got); err != nil || !reflect.DeepEqual(got, before) {
			t.Errorf("%q: got %v and %+v, want no change", in, err, got)
		}
	}
	for _, v := range []any{outer{}, (*outer)(nil), nil} {
		if err := settings.Decode([]byte("{}"), v); err == nil {
			t.Errorf("%T: got no error", v)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	const all = "Plain, any, array, byte, count, image, in, key, level, link, list, numbers, over, ptr, raw, small, sub, time, wait"
	for name, c := range map[string]struct{ in, want string }{
		"unknown":       {`{"imgae":"x"}`, `unknown field "imgae"; did you mean "image"?`},
		"unknown-deep":  {`{"list":[{},{"sise":1}]}`, `list[1]: unknown field "sise"; did you mean "size"?`},
		"unknown-far":   {`{"in":{"zzzzzz":1}}`, `in: unknown field "zzzzzz"; there are map, names, rate, size`},
		"hidden":        {`{"-":1,"private":2}`, "unknown field \"-\"; there are " + all + "\nunknown field \"private\"; there are " + all},
		"case":          {`{"Image":"x"}`, `unknown field "Image"; did you mean "image"?`},
		"twice":         {`{"image":"x","image":"y"}`, `field "image" is given twice`},
		"twice-in-map":  {`{"in":{"map":{"a":1,"a":2}}}`, `in.map: field "a" is given twice`},
		"text":          {`{"image":3.10}`, `image: want a string, got a number`},
		"text-bool":     {`{"image":true}`, `image: want a string, got true or false`},
		"bool":          {`{"over":"yes"}`, `over: want true or false, got a string`},
		"number":        {`{"in":{"size":"3"}}`, `in.size: want a whole number in range, got a string`},
		"fraction":      {`{"in":{"size":1.5}}`, `in.size: want a whole number in range, got a number`},
		"range":         {`{"small":300}`, `small: want a whole number in range, got a number`},
		"negative":      {`{"count":-1}`, `count: want a whole number from 0, in range, got a number`},
		"float":         {`{"in":{"rate":1e999}}`, `in.rate: want a number in range, got a number`},
		"duration":      {`{"wait":30}`, `wait: want a duration with its unit in quotes, such as "30s" or "1h30m"`},
		"duration-text": {`{"wait":"soon"}`, `wait: want a duration with its unit in quotes, such as "30s" or "1h30m"`},
		"secret":        {`{"key":"hunter2"}`, `key: a configuration names a secret and does not contain it: {env: NAME} or {file: PATH}`},
		"secret-field":  {`{"key":{"value":"hunter2"}}`, `key: unknown field "value"; there are env, file`},
		"secret-both":   {`{"key":{"env":"A","file":"b"}}`, `key: want one of env and file, got both`},
		"object":        {`{"in":[]}`, `in: want an object, got a list`},
		"map":           {`{"sub":"x"}`, `sub: want an object, got a string`},
		"list":          {`{"list":{}}`, `list: want a list, got an object`},
		"bytes":         {`{"byte":"*"}`, `byte: want base64 in a string, got a string`},
		"array":         {`{"array":"x"}`, `array: want a list, got a string`},
		"number-map":    {`{"numbers":[]}`, `numbers: want an object, got a list`},
		"odd-key":       {`{"sub":{"a.b":{"x":1}}}`, `sub["a.b"]: unknown field "x"; there are map, names, rate, size`},
		"escape-key":    {"{\"sub\":{\"\\u001b[2J\":{\"x\":1}}}", `sub["\x1b[2J"]: unknown field "x"; there are map, names, rate, size`},
		"unmarshaler":   {`{"time":5}`, `time: Time.UnmarshalJSON: input is not a JSON string`},
		"text-form":     {`{"level":"low"}`, `level: want high`},
		"no-text-form":  {`{"level":9}`, `level: want a string, got a number`},
		"top":           {`[]`, `want an object, got a list`},
		"syntax":        {"{\n  \"image\": }", `line 2: not JSON: invalid character '}' looking for beginning of value`},
		"trailing":      {`{} {}`, `line 1: not JSON: invalid character '{' after top-level value`},
		"all":           {`{"imgae":1,"in":{"size":"x","names":[1]}}`, "unknown field \"imgae\"; did you mean \"image\"?\nin.size: want a whole number in range, got a string\nin.names[0]: want a string, got a number"},
	} {
		t.Run(name, func(t *testing.T) {
			var v outer
			err := settings.Decode([]byte(c.in), &v)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecodeBoundsErrors(t *testing.T) {
	var v outer
	err := settings.Decode([]byte(`{"list":[`+strings.Repeat("0,", 100_000)+`0]}`), &v)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 101 || lines[100] != "and 99901 more errors" {
		t.Errorf("got %d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
	for _, in := range []string{`{"` + strings.Repeat("k", 1<<20) + `":0}`, `{"sub":{"` + strings.Repeat("k", 1<<20) + `":0}}`} {
		if err := settings.Decode([]byte(in), &v); err == nil || len(err.Error()) > 500 {
			t.Errorf("got an error of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

// FuzzDecode compares Decode with encoding/json: what it takes, encoding/json takes too, with the
// same value.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"image":"x","in":{"size":3,"names":["a"],"map":{"k":1}},"list":[{}],"wait":"9s","key":{"env":"K"}}`))
	f.Add([]byte(`{"raw":{"a":1},"any":[null,1e5,"\ud800"],"ptr":{"size":1},"byte":"aGk=","sub":{"a.b":{}},"link":"x"}`))
	f.Add([]byte(`{"image":null,"x":1,"small":1e2,"array":[1],"numbers":{"1":2}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var got, want outer
		if len(strings.TrimSpace(string(in))) == 0 || settings.Decode(in, &got) != nil {
			return
		}
		if err := json.Unmarshal(in, &want); err != nil {
			t.Fatalf("json: %v", err)
		}
		a, errA := json.Marshal(got)
		b, errB := json.Marshal(want)
		if string(a) != string(b) || (errA == nil) != (errB == nil) {
			t.Errorf("got %s (%v)\nwant %s (%v)", a, errA, b, errB)
		}
	})
}

func TestAt(t *testing.T) {
	one := &executor.FieldError{Path: "a", Err: errors.New("one")}
	wrapped := fmt.Errorf("reading: %w", one)
	err := settings.At("backends.x", errors.Join(one, errors.Join(errors.New("two"), &executor.FieldError{Path: "[3]", Err: errors.New("three")}), wrapped))
	want := "backends.x.a: one\nbackends.x: two\nbackends.x[3]: three\nbackends.x: reading: a: one"
	if err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := settings.At("", one); err.Error() != "a: one" || !errors.Is(err, one.Err) {
		t.Errorf("got %v", err)
	}
	if err := settings.At("x", nil); err != nil {
		t.Errorf("got %v of no error", err)
	}
	if one.Path != "a" {
		t.Error("At has changed what it was given")
	}
}

func TestUnknown(t *testing.T) {
	known := []string{"docker", "pyodide", "e2b", "flymachines"}
	for word, want := range map[string]string{
		"pyodid":                   `unknown type "pyodid"; did you mean "pyodide"?`,
		"Docker":                   `unknown type "Docker"; did you mean "docker"?`,
		"dokcer":                   `unknown type "dokcer"; did you mean "docker"?`,
		"e2":                       `unknown type "e2"; did you mean "e2b"?`,
		"firecrack":                `unknown type "firecrack"; there are docker, e2b, flymachines, pyodide`,
		"x\x1b[2J":                 `unknown type "x\x1b[2J"; there are docker, e2b, flymachines, pyodide`,
		strings.Repeat("x", 1<<20): `unknown type "` + strings.Repeat("x", 64) + `"...; there are docker, e2b, flymachines, pyodide`,
	} {
		if got := settings.Unknown("type", word, known).Error(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got, want := settings.Unknown("field", "x", nil).Error(), `unknown field "x"; there are none`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := settings.Nearest("tyop", []string{"type", "image"}); got != "type" {
		t.Errorf("got %q", got)
	}
}
