package checkpoint

import (
	"bytes"
	"io/fs"
	"reflect"
	"slices"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// encoded returns the tar of an archive.
func encoded(tb testing.TB, m Manifest, values, graph string, files ...entry) []byte {
	tb.Helper()
	m.Version = Version
	if m.Dir == "" {
		m.Dir = "."
	}
	raw, err := (&archive{manifest: m, values: []byte(values), graph: []byte(graph), files: files}).encode()
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func TestMerge(t *testing.T) {
	npm := executor.Packages{Language: executor.JavaScript, Names: []string{"left-pad"}}
	pip := executor.Packages{Language: executor.Python, Names: []string{"rich"}}
	python := encoded(t, Manifest{
		Language: executor.Python, Python: "3.13.1", Dir: "d", Steps: []Step{{Op: OpValue, Name: "x", Kind: "int", Size: 5}},
		Omitted: []Omission{{"lock", "lock", "open"}}, JavaScript: []Variable{{"stale", "int"}}, Packages: []executor.Packages{pip, npm},
	}, "12345", "{}",
		entry{name: "d", mode: fs.ModeDir}, entry{name: "d/only", mode: 0o644, data: []byte("python's")},
		entry{name: "e", mode: fs.ModeDir}, entry{name: "e/below", mode: 0o644},
		entry{name: "same", mode: 0o644, data: []byte("same")}, entry{name: "both", mode: 0o644, data: []byte("python's")},
		entry{name: "link", mode: fs.ModeSymlink, target: "same"},
	)
	javascript := encoded(t, Manifest{
		JavaScript: []Variable{{"y", "Map"}}, Omitted: []Omission{{"lock", "lock", "open"}, {"f", "file", "open"}}, Packages: []executor.Packages{npm},
	}, "", "{1}",
		entry{name: "both", mode: 0o644, data: []byte("javascript's")}, entry{name: "d", mode: fs.ModeDir}, entry{name: "e", mode: 0o600},
		entry{name: "link", mode: fs.ModeSymlink, target: "both"}, entry{name: "same", mode: 0o644, data: []byte("same")},
	)
	const why = "another language has something else under this name, which was used later"
	raw, err := Merge([]Part{{executor.Python, python}, {executor.JavaScript, javascript}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(bytes.NewReader(raw), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	m := got.manifest
	want := Manifest{
		Version: Version, Language: executor.Python, Python: "3.13.1", Dir: "d", Steps: []Step{{Op: OpValue, Name: "x", Kind: "int", Size: 5}},
		JavaScript: []Variable{{"y", "Map"}}, Packages: []executor.Packages{npm, pip},
		Omitted: []Omission{{"lock", "lock", "open"}, {"f", "file", "open"}, {"e/below", "file", why}, {"both", "file", why}, {"link", "link", why}},
	}
	if !reflect.DeepEqual(m, want) || string(got.values) != "12345" || string(got.graph) != "{1}" {
		t.Errorf("got %+v, %q, %q, want %+v", m, got.values, got.graph, want)
	}
	content := map[string]string{}
	for _, e := range got.files {
		content[e.name] = string(e.data) + e.target
	}
	if files := map[string]string{"d": "", "d/only": "python's", "e": "", "same": "same", "both": "javascript's", "link": "both"}; !reflect.DeepEqual(content, files) {
		t.Errorf("got %q", content)
	}

	// The other way round, the files of Python stay.
	raw, err = Merge([]Part{{executor.JavaScript, javascript}, {executor.Python, python}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = parse(bytes.NewReader(raw), 1<<20); err != nil || !slices.ContainsFunc(got.files, func(e entry) bool { return e.name == "e/below" }) {
		t.Errorf("%v: got %+v", err, got.files)
	}
	if !slices.Contains(got.manifest.Omitted, Omission{"e", "file", why}) {
		t.Errorf("got %+v", got.manifest.Omitted)
	}
}

func TestMergeRefuses(t *testing.T) {
	good := encoded(t, Manifest{}, "", "", entry{name: "f", mode: 0o644, data: make([]byte, 4000)})
	other := encoded(t, Manifest{}, "", "", entry{name: "g", mode: 0o644, data: make([]byte, 4000)})
	for name, parts := range map[string][]Part{
		"no archive":     {{executor.Python, good}, {executor.JavaScript, good[1:]}},
		"language":       {{"ruby", good}},
		"over the limit": {{executor.Python, good}, {executor.JavaScript, other}},
	} {
		if _, err := Merge(parts, int64(len(good)+100)); err == nil {
			t.Errorf("%s: is accepted", name)
		}
	}
}
