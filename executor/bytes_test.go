package executor_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestBytesJSON(t *testing.T) {
	for name, c := range map[string]struct {
		in   executor.Bytes
		want string
	}{
		"text":           {executor.Bytes("héllo\n"), `"héllo\n"`},
		"empty":          {executor.Bytes{}, `""`},
		"nil":            {nil, `""`},
		"nul":            {executor.Bytes("a\x00b"), `"a\u0000b"`},
		"binary":         {executor.Bytes("\xff\x00a"), `{"base64":"/wBh"}`},
		"half-character": {executor.Bytes("\xe2\x82"), `{"base64":"4oI="}`},
		"surrogate":      {executor.Bytes("\xed\xa0\x80"), `{"base64":"7aCA"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(c.in)
			if err != nil || string(got) != c.want {
				t.Fatalf("got %s %v, want %s", got, err, c.want)
			}
			var back executor.Bytes
			if err := json.Unmarshal(got, &back); err != nil || !bytes.Equal(back, c.in) {
				t.Errorf("got %q %v, want %q", back, err, c.in)
			}
		})
	}
}

func TestBytesRefuses(t *testing.T) {
	for _, in := range []string{`1`, `true`, `[]`, `{}`, `{"base64":1}`, `{"base64":"*"}`, `{"hex":"00"}`} {
		var b executor.Bytes
		if err := json.Unmarshal([]byte(in), &b); err == nil {
			t.Errorf("%s: got %q and no error", in, b)
		}
	}
	b := executor.Bytes("old")
	if err := json.Unmarshal([]byte(`null`), &b); err != nil || b != nil {
		t.Errorf("null: got %q %v, want none", b, err)
	}
}

// FuzzBytes tests that all bytes survive JSON, and that any accepted JSON has only one value.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"", "héllo", "\xff\xfe", `{"base64":"/wBh"}`, `"\ud800"`, "\u2028<>&", "\xed\xa0\x80", strings.Repeat("\xf0\x9f\x98", 9)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		text, err := json.Marshal(executor.Bytes(in))
		if err != nil {
			t.Fatal(err)
		}
		var back executor.Bytes
		if err := json.Unmarshal(text, &back); err != nil || !bytes.Equal(back, in) {
			t.Errorf("%s: got %q %v, want %q", text, back, err, in)
		}
		var first, second executor.Bytes
		if json.Unmarshal(in, &first) != nil {
			return
		}
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &second); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: got %q %v, want %q", in, second, err, first)
		}
	})
}
