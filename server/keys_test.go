package server

import (
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"short":   {`[{"key": "short"}]`, "keys[0]: want 16 to 512"},
		"space":   {`[{"key": "with spaces 0123456789"}]`, "keys[0]"},
		"twice":   {`[{"key": "0123456789abcdef"}, {"key": "0123456789abcdef"}]`, "keys[1]: is there twice"},
		"unknown": {`[{"key": "0123456789abcdef", "plan": "x"}]`, `unknown field "plan"`},
		"empty":   {`[]`, "no request would be accepted"},
		"more":    {`[{"key": "0123456789abcdef"}] []`, "unexpected data after"},
		"text":    {`key`, "keys: "},
	} {
		_, err := ParseKeys([]byte(test.in))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	k, err := ParseKeys([]byte(`[{"key": "0123456789abcdef", "subject": "team", "attributes": {"plan": "pro"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := k.Lookup("0123456789abcdef"); !ok || c.Subject != "team" || c.Attributes["plan"] != "pro" {
		t.Errorf("got %+v, %v", c, ok)
	}
	if _, ok := k.Lookup(""); ok {
		t.Error("no key is a key")
	}
}
