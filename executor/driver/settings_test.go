package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

type checked struct {
	Image string `json:"image"`
	Size  int    `json:"size"`
}

func (c *checked) Validate() error {
	var errs []error
	if c.Image == "" {
		errs = append(errs, &executor.FieldError{Path: "image", Err: errors.New("is required")})
	}
	if c.Size > 9 {
		errs = append(errs, errors.New("too large"))
	}
	return errors.Join(errs...)
}

func TestChoices(t *testing.T) {
	known := []executor.Language{executor.Python, executor.JavaScript}
	err := driver.At("languages", driver.Choices("language", []executor.Language{"python", "pyton", "javascript", "python"}, known))
	const want = "languages[1]: unknown language \"pyton\"; did you mean \"python\"?\nlanguages[3]: given twice"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := driver.Choices("language", known, known); err != nil {
		t.Error(err)
	}
}

// TestFactoryCheck tests that what Validate finds comes along with surplus fields, but not along
// with values that were not decoded.
func TestFactoryCheck(t *testing.T) {
	f := driver.NewFactory[checked]("x", nil, nil)
	for in, want := range map[string]string{
		`{"image":"x"}`:            "",
		``:                         "image: is required",
		`{"size":10}`:              "image: is required\ntoo large",
		`{"imag":"x"}`:             "unknown field \"imag\"; did you mean \"image\"?\nimage: is required",
		`{"size":1,"size":1}`:      "field \"size\" is given twice\nimage: is required",
		`{"image":5,"size":[]}`:    "image: want a string, got a number\nsize: want a whole number in range, got a list",
		`{"image":"x","size":"1"}`: "size: want a whole number in range, got a string",
	} {
		got := ""
		if err := f.Check([]byte(in)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s\nwant %s", in, got, want)
		}
	}
	if f.Type() != "x" || !slices.Equal(f.Fields(), []string{"image", "size"}) {
		t.Errorf("got %q with %q", f.Type(), f.Fields())
	}
	if got := driver.NewFactory[map[string]string]("y", nil, nil).Fields(); got != nil {
		t.Errorf("got %q of settings without fields", got)
	}
}

func TestFactoryOpen(t *testing.T) {
	var got checked
	f := driver.NewFactory("bare", func(_ context.Context, env driver.Env, s checked) (executor.Executor, error) {
		got = s
		return driver.New(&bare{}, env, driver.Options{Type: "bare"})
	}, nil)
	x, err := f.Open(t.Context(), driver.Env{Name: "n", Owner: "o"}, []byte(`{"image":"x"}`))
	if err != nil || got.Image != "x" || x.Info().Name != "n" {
		t.Fatalf("got %v, %+v %v", x, got, err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if x, err := f.Open(t.Context(), driver.Env{}, []byte(`{}`)); err == nil || x != nil {
		t.Errorf("got %v %v of wrong settings", x, err)
	}
}

func TestFactoryDoctor(t *testing.T) {
	f := driver.NewFactory("x", nil, func(_ context.Context, env driver.Env, s checked) []driver.Check {
		return []driver.Check{{Name: env.Name, Detail: s.Image}}
	})
	got := f.Doctor(t.Context(), driver.Env{Name: "n"}, []byte(`{"image":"x"}`))
	if want := []driver.Check{{Name: "configuration", OK: true}, {Name: "n", Detail: "x"}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got = f.Doctor(t.Context(), driver.Env{}, nil); len(got) != 1 || got[0].OK || got[0].Detail != "image: is required" || got[0].Fix == "" {
		t.Errorf("got %+v", got)
	}
	if got = driver.NewFactory[checked]("x", nil, nil).Doctor(t.Context(), driver.Env{}, []byte(`{"image":"x"}`)); len(got) != 1 || !got[0].OK {
		t.Errorf("got %+v", got)
	}
}

func TestSecretValue(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Setenv("SECRET_TEST", " hunter2\n")
	t.Setenv("SECRET_EMPTY", " ")
	for name, c := range map[string]struct {
		s    driver.Secret
		want string
		err  string
	}{
		"env":       {driver.Secret{Env: "SECRET_TEST"}, "hunter2", ""},
		"file":      {driver.Secret{File: file("key", "hunter2\n")}, "hunter2", ""},
		"largest":   {driver.Secret{File: file("largest", strings.Repeat("x", 64<<10))}, strings.Repeat("x", 64<<10), ""},
		"none":      {driver.Secret{}, "", "no secret is configured"},
		"both":      {driver.Secret{Env: "SECRET_TEST", File: "x"}, "", "got both"},
		"env-unset": {driver.Secret{Env: "SECRET_UNSET"}, "", "environment variable SECRET_UNSET: not set or empty"},
		"env-empty": {driver.Secret{Env: "SECRET_EMPTY"}, "", "not set or empty"},
		"env-paste": {driver.Secret{Env: "hunter2"}, "", "not shown"},
		"no-file":   {driver.Secret{File: filepath.Join(dir, "none")}, "", "no such file"},
		"directory": {driver.Secret{File: dir}, "", "is a directory"},
		"empty":     {driver.Secret{File: file("empty", "\n")}, "", "not set or empty"},
		"too-large": {driver.Secret{File: file("large", strings.Repeat("x", 64<<10+1))}, "", "more than 65536 bytes"},
	} {
		got, err := c.s.Value()
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %.20q %v, want %.20q %q", name, got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the secret is in %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("renewed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := (driver.Secret{File: filepath.Join(dir, "key")}).Value(); got != "renewed" || err != nil {
		t.Errorf("got %q %v, want what is there now", got, err)
	}
}

func TestSecretForms(t *testing.T) {
	const hidden = "(name not shown, it may be the secret itself)"
	for _, c := range []struct {
		s            driver.Secret
		text, inJSON string
	}{
		{driver.Secret{}, "no secret", `{}`},
		{driver.Secret{Env: "E2B_API_KEY"}, "environment variable E2B_API_KEY", `{"env":"E2B_API_KEY"}`},
		{driver.Secret{File: "/run/secrets/key"}, "file /run/secrets/key", `{"file":"/run/secrets/key"}`},
		{driver.Secret{Env: "A", File: "b"}, "a secret with both env and file", `{"env":"A","file":"b"}`},
		{driver.Secret{Env: "e2b_hunter2"}, "environment variable " + hidden, `{"env":"` + hidden + `"}`},
		{driver.Secret{Env: strings.Repeat("A", 65)}, "environment variable " + hidden, `{"env":"` + hidden + `"}`},
	} {
		s := c.s
		if inJSON, err := json.Marshal(s); s.String() != c.text || string(inJSON) != c.inJSON || err != nil {
			t.Errorf("got %s and %s %v, want %s and %s", s, inJSON, err, c.text, c.inJSON)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if got := fmt.Sprintf(verb, s); strings.Contains(got, "hunter2") {
				t.Errorf("%s: the secret is in %s", verb, got)
			}
		}
		if s.IsZero() != (s == driver.Secret{}) {
			t.Errorf("%v: IsZero is %v", s, s.IsZero())
		}
	}
}

func TestDuration(t *testing.T) {
	d := driver.Duration(90 * time.Second)
	text, err := json.Marshal(d)
	if err != nil || string(text) != `"1m30s"` {
		t.Errorf("got %s %v", text, err)
	}
	var back driver.Duration
	if err := json.Unmarshal(text, &back); err != nil || back != d {
		t.Errorf("got %v %v", back, err)
	}
	if err := back.UnmarshalText([]byte("-1.5h")); err != nil || time.Duration(back) != -90*time.Minute {
		t.Errorf("got %v %v", back, err)
	}
	for _, in := range []string{`"30"`, `30`, `"x"`, `""`, `{}`} {
		if err := json.Unmarshal([]byte(in), &back); err == nil || time.Duration(back) != -90*time.Minute {
			t.Errorf("%s: got %v %v", in, back, err)
		}
	}
}
