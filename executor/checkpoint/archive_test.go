package checkpoint

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
)

// sample is an archive with one of everything.
func sample(tb testing.TB) []byte {
	tb.Helper()
	a := &archive{
		manifest: Manifest{
			Version: Version, Language: "python", Python: "3.13.1", Dir: "a",
			Imports: []Import{{Name: "np", Module: "numpy"}}, Omitted: []Omission{{"f", "file", "open"}},
			Steps:      []Step{{Op: OpDefine, Name: "f", Source: "def f(): pass\n"}, {Op: OpValue, Name: "x", Kind: "int", Size: 5}},
			JavaScript: []Variable{{"y", "Map"}},
		},
		values: []byte("12345"),
		graph:  []byte("{}"),
		files: []entry{
			{name: "a", mode: fs.ModeDir},
			{name: "a/x", mode: 0o640, data: []byte("content")},
			{name: "a/" + strings.Repeat("long", 30), mode: 0o755},
			{name: "link", mode: fs.ModeSymlink, target: "a/x"},
		},
	}
	raw, err := a.encode()
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func TestEncode(t *testing.T) {
	raw := sample(t)
	a, err := parse(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.encode()
	if err != nil || !bytes.Equal(again, raw) {
		t.Errorf("%v; the archive is not the same", err)
	}
	if e := a.files[1]; e.mode != 0o640 || string(e.data) != "content" || a.files[3].target != "a/x" {
		t.Errorf("%+v", a.files)
	}
}

func TestTruncated(t *testing.T) {
	raw := sample(t)
	for n := range raw {
		if _, err := parse(bytes.NewReader(raw[:n]), 1<<20); err == nil {
			t.Fatalf("the first %d of %d bytes are accepted", n, len(raw))
		}
	}
	if _, err := parse(bytes.NewReader(append(raw, 0)), 1<<20); err == nil {
		t.Error("something behind the archive is accepted")
	}
	if _, err := parse(bytes.NewReader(raw), int64(len(raw))-1); !errors.Is(err, errTooBig) {
		t.Errorf("more than the bound: %v", err)
	}
}

// tarOf writes an archive with other headers.
func tarOf(tb testing.TB, manifest string, values string, more ...tar.Header) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(h tar.Header, data string) {
		if err := w.WriteHeader(&h); err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			tb.Fatal(err)
		}
	}
	put(tar.Header{Name: manifestName, Size: int64(len(manifest)), Typeflag: tar.TypeReg}, manifest)
	put(tar.Header{Name: valuesName, Size: int64(len(values)), Typeflag: tar.TypeReg}, values)
	for _, h := range more {
		put(h, strings.Repeat("x", int(h.Size)))
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

const empty = `{"version":1,"language":"python","python":"","implementation":"","platform":"","dir":".","imports":[],"steps":[],"omitted":[]}`

func TestAttacks(t *testing.T) {
	if _, err := parse(bytes.NewReader(tarOf(t, empty, "", tar.Header{Name: "files/ok", Typeflag: tar.TypeReg})), 1<<20); err != nil {
		t.Fatal(err)
	}
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
	}
	dir := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }
	for name, files := range map[string][]tar.Header{
		"outside":           {reg("x")},
		"no-variables":      {{Name: graphName, Typeflag: tar.TypeReg}},
		"absolute":          {reg("/etc/passwd")},
		"absolute-below":    {reg("files//etc/passwd")},
		"traversal":         {reg("files/../x")},
		"traversal-inside":  {dir("files/a/"), reg("files/a/../x")},
		"dot":               {reg("files/./x")},
		"root":              {dir("files/")},
		"own-file":          {reg("files/.execbroker-checkpoint-x")},
		"long-element":      {reg("files/" + strings.Repeat("x", 256))},
		"no-directory":      {reg("files/a/x")},
		"below-a-file":      {reg("files/a"), reg("files/a/x")},
		"below-a-link":      {dir("files/b/"), link("files/a", "b"), reg("files/a/x")},
		"twice":             {reg("files/a"), reg("files/a")},
		"twice-as-link":     {reg("files/a"), link("files/a", "b")},
		"twice-manifest":    {reg(manifestName)},
		"link-absolute":     {link("files/a", "/etc")},
		"link-workdir":      {link("files/a", "/workspace/b")},
		"link-up":           {link("files/a", "..")},
		"link-up-later":     {dir("files/d/"), link("files/d/l", "../t"), link("files/m", "d/l/../..")},
		"link-up-deep":      {dir("files/a/"), link("files/a/b", "../../x")},
		"link-empty":        {link("files/a", "")},
		"hard-link":         {reg("files/a"), {Name: "files/b", Linkname: "files/a", Typeflag: tar.TypeLink}},
		"device":            {{Name: "files/a", Typeflag: tar.TypeChar}},
		"pipe":              {{Name: "files/a", Typeflag: tar.TypeFifo}},
		"setuid":            {{Name: "files/a", Typeflag: tar.TypeReg, Mode: 0o4755}},
		"attributes":        {{Name: "files/a", Typeflag: tar.TypeReg, Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "1"}}},
		"gnu":               {{Name: "files/a", Typeflag: tar.TypeReg, Format: tar.FormatGNU}},
		"name-with-newline": {reg("files/" + strings.Repeat("a/", 40) + "x")},
	} {
		if _, err := parse(bytes.NewReader(tarOf(t, empty, "", files...)), 1<<20); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	many := make([]tar.Header, MaxFiles+1)
	for i := range many {
		many[i] = reg("files/" + strings.Repeat("a", i%200+1) + string(rune('a'+i/200%26)) + string(rune('a'+i/5200)))
	}
	if _, err := parse(bytes.NewReader(tarOf(t, empty, "", many...)), 64<<20); err == nil {
		t.Error("too many entries are accepted")
	}
}

// TestManifests changes one thing in a manifest at a time.
func TestManifests(t *testing.T) {
	step := func(edit map[string]any) map[string]any {
		s := map[string]any{"op": "value", "name": "x", "kind": "int", "size": 5}
		maps.Copy(s, edit)
		return map[string]any{"steps": []any{s}}
	}
	for name, c := range map[string]struct {
		edit map[string]any
		ok   bool
	}{
		"good":          {step(nil), true},
		"version":       {map[string]any{"version": 2}, false},
		"no-version":    {map[string]any{"version": 0}, false},
		"language":      {map[string]any{"language": "r"}, false},
		"field":         {map[string]any{"other": 1}, false},
		"dir":           {map[string]any{"dir": "../x"}, false},
		"type":          {map[string]any{"steps": "x"}, false},
		"no-steps":      {map[string]any{"steps": []any{}}, false},
		"size":          {step(map[string]any{"size": 6}), false},
		"less":          {step(map[string]any{"size": 4}), false},
		"negative":      {step(map[string]any{"size": -5}), false},
		"overflow":      {map[string]any{"steps": []any{map[string]any{"op": "value", "name": "x", "kind": "", "size": int64(1) << 62}, map[string]any{"op": "value", "name": "x", "kind": "", "size": int64(1) << 62}}}, false},
		"packages":      {map[string]any{"steps": []any{}, "packages": []any{map[string]any{"language": "python", "names": []string{"six", "x\x1b"}}}}, false},
		"op":            {step(map[string]any{"op": "exec"}), false},
		"source":        {step(map[string]any{"source": "x"}), false},
		"nameless":      {step(map[string]any{"name": ""}), false},
		"control":       {step(map[string]any{"name": "a\x1b"}), false},
		"long":          {step(map[string]any{"kind": strings.Repeat("x", maxText+1)}), false},
		"import":        {map[string]any{"imports": []any{map[string]any{"name": "x"}}}, false},
		"import-no-use": {map[string]any{"imports": []any{map[string]any{"module": "x", "attr": "y"}}}, false},
		"omission":      {map[string]any{"omitted": []any{map[string]any{"name": "x", "reason": "a\nb"}}}, false},
	} {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(empty), &m); err != nil {
			t.Fatal(err)
		}
		maps.Copy(m, step(nil))
		maps.Copy(m, c.edit)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(bytes.NewReader(tarOf(t, string(raw), "12345")), 1<<20); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parse(bytes.NewReader(tarOf(t, empty+"{}", "")), 1<<20); err == nil {
		t.Error("two manifests are accepted")
	}
	if _, err := parse(bytes.NewReader(tarOf(t, strings.Replace(empty, `"version":1`, `"version":7,"new":1`, 1), "")), 1<<20); err == nil || !strings.Contains(err.Error(), "version 7") {
		t.Errorf("an unknown version: %v", err)
	}
}

// FuzzParse reads archives: what is accepted is inside of the bounds, and is the same when it is
// written again and read.
func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	f.Add(tarOf(f, empty, ""))
	f.Fuzz(func(t *testing.T, raw []byte) {
		const limit = 1 << 20
		a, err := parse(bytes.NewReader(raw), limit)
		if err != nil {
			return
		}
		size := len(a.values)
		for _, e := range a.files {
			size += len(e.data)
			if !validName(e.name) || e.mode == fs.ModeSymlink && !inside(e.name, e.target) {
				t.Errorf("%+v is accepted", e)
			}
		}
		if size > limit {
			t.Errorf("%d bytes of %d", size, len(raw))
		}
		again, err := a.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(bytes.NewReader(again), 2*limit); err != nil {
			t.Error(err)
		}
	})
}
