package backends_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
)

const example = `
backends:
  local: {type: toy}
  box:
    type: toy
    image: "python:3.13"
    size: 4
    wait: 30s
    key: {env: TOY_KEY}
`

func TestParse(t *testing.T) {
	want, err := backends.Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if err := want.Check(registry()); err != nil {
		t.Fatal(err)
	}
	if got := want.Backends["box"].Type; got != "toy" {
		t.Errorf("got type %q", got)
	}
	if got := string(want.Backends["box"].Settings["key"]); got != `{"env":"TOY_KEY"}` {
		t.Errorf("got settings %s", got)
	}
	for name, in := range map[string]string{
		"json":      `{"backends": {"local": {"type": "toy"}, "box": {"type": "toy", "image": "python:3.13", "size": 4, "wait": "30s", "key": {"env": "TOY_KEY"}}}}`,
		"json-tabs": "{\n\t\"backends\": {\n\t\t\"local\": {\"type\": \"toy\"}, \"box\": {\"type\": \"toy\", \"image\": \"python:3.13\", \"size\": 4, \"wait\": \"30s\", \"key\": {\"env\": \"TOY_KEY\"}}}}\n",
		"flow":      `{backends: {local: {type: toy}, box: {type: toy, image: "python:3.13", size: 4, wait: 30s, key: {env: TOY_KEY}}}}`,
		"bom":       "\ufeff" + example[1:],
		"crlf":      strings.ReplaceAll(example, "\n", "\r\n"),
		"markers":   "---" + example + "...\n",
	} {
		got, err := backends.Parse([]byte(in))
		if err != nil || !reflect.DeepEqual(compact(t, got), compact(t, want)) {
			t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

// compact returns a Config in one form, however it was written.
func compact(t *testing.T, c backends.Config) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMarshalRoundTrip(t *testing.T) {
	c, err := backends.Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	again, err := backends.Parse([]byte(compact(t, c)))
	if err != nil || compact(t, again) != compact(t, c) {
		t.Errorf("got %s, %v", compact(t, again), err)
	}
}

// check is Parse and Check together, as a program uses them.
func check(data string) error {
	c, err := backends.Parse([]byte(data))
	if err != nil && c.Backends == nil {
		return err
	}
	return errors.Join(err, c.Check(registry()))
}

// TestErrors compares the errors about the files in testdata with the golden files. Run it with
// UPDATE=1 to write the golden files.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := check(string(data))
			if found == nil {
				t.Fatal("no error was found")
			}
			got := ""
			for _, m := range executor.FieldErrors(found) {
				got += m.Error() + "\n"
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("got\n%swant\n%s%v", got, want, err)
			}
		})
	}
}

func TestParseBounds(t *testing.T) {
	bomb := "a: &a [_, _, _, _, _, _, _, _, _, _]\n"
	for c := 'b'; c <= 'z'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [*" + strings.Repeat(p+", *", 9) + p + "]\n"
	}
	for name, c := range map[string]struct{ in, want string }{
		"size":      {strings.Repeat("#", 256<<10+1), "at most 262144 are allowed"},
		"utf8":      {"backends: {\xff: {}}", "not UTF-8"},
		"bomb":      {bomb, "anchors and aliases are not supported"},
		"self":      {"a: &a [*a]", "anchors and aliases are not supported"},
		"deep":      {"backends: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "nested deeper than"},
		"too-deep":  {strings.Repeat("[", 100_000), "exceeded max depth"},
		"deep-json": {`{"backends": {"a": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`, "exceeded max depth"},
		"long-key":  {strings.Repeat("k", 1000) + ": 1", "a key has 1000 bytes"},
		"many":      {"backends: {" + strings.Repeat("1: 2, ", 10_000) + "}", "more errors"},
		"wide":      {"backends: [" + strings.Repeat("0,", 100_000) + "0]", "want an object, got a list"},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(c.in)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.500v, want %s", err, c.want)
			}
			if n := len(executor.FieldErrors(err)); n > 250 {
				t.Errorf("got %d errors", n)
			}
		})
	}
}

// TestSecretsAreNotPrinted puts a secret wherever a configuration may contain one by mistake.
func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, in := range []string{
		"backends: {a: {type: toy, key: " + secret + "}}",
		"backends: {a: {type: toy, key: {env: [" + secret + "]}}}",
		"backends: {a: {type: toy, key: &x " + secret + "}}",
		"backends: {a: {type: toy, key: !!binary " + secret + "}}",
		"backends: {a: {type: toy, size: " + secret + "}}",
		"backends: " + secret,
		`{"backends": {"a": {"type": "toy", "key": "` + secret + `"}}`,
		secret,
	} {
		if err := check(in); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v", in, err)
		}
	}
}

// FuzzParse checks that Parse does not panic, that an accepted Config can be written and parsed
// again, and that every error has a text.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	files, _ := filepath.Glob("testdata/errors/*.yaml")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			f.Add(data)
		}
	}
	reg := registry()
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := backends.Parse(data)
		for _, m := range executor.FieldErrors(errors.Join(err, c.Check(reg))) {
			if m.Err == nil || m.Err.Error() == "" || m.Line < 0 || m.Column < 0 {
				t.Errorf("got the error %+v", m)
			}
		}
		if err != nil {
			return
		}
		again, err := backends.Parse([]byte(compact(t, c)))
		if err != nil || compact(t, again) != compact(t, c) {
			t.Errorf("got %s, %v\nwant %s", compact(t, again), err, compact(t, c))
		}
	})
}
