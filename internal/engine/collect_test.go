package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// workdir is what a sandbox has below Workdir.
type workdir map[string]string

func (w workdir) read(_ context.Context, name string) (io.ReadCloser, error) {
	if data, ok := w[name]; ok {
		return io.NopCloser(strings.NewReader(data)), nil
	}
	return nil, fs.ErrNotExist
}

// changed lists the names, with honest sizes.
func (w workdir) changed(names ...string) (cs []driver.Changed) {
	for _, n := range names {
		cs = append(cs, driver.Changed{Name: n, Size: int64(len(w[n])), ModTime: time.Unix(1, 0)})
	}
	return cs
}

func names(arts []executor.Artifact) (ns []string) {
	for _, a := range arts {
		ns = append(ns, a.Name)
	}
	return ns
}

func TestCollectSelects(t *testing.T) {
	all := []string{"z.txt", "a.csv", "dir/b.csv", "dir/deep/c.csv", ".hidden", "Z.csv", "dir/d.txt"}
	w := workdir{}
	for _, n := range all {
		w[n] = n
	}
	for name, c := range map[string]struct {
		globs   []string
		max     int
		want    []string
		omitted int
	}{
		"all":             {nil, 0, []string{".hidden", "Z.csv", "a.csv", "dir/b.csv", "dir/d.txt", "dir/deep/c.csv", "z.txt"}, 0},
		"one-level":       {[]string{"*.csv"}, 0, []string{"Z.csv", "a.csv"}, 0},
		"below":           {[]string{"dir/*.csv"}, 0, []string{"dir/b.csv"}, 0},
		"any-depth":       {[]string{"**/*.csv"}, 0, []string{"Z.csv", "a.csv", "dir/b.csv", "dir/deep/c.csv"}, 0},
		"whole-directory": {[]string{"dir/**"}, 0, []string{"dir/b.csv", "dir/d.txt", "dir/deep/c.csv"}, 0},
		"in-the-middle":   {[]string{"dir/**/c.csv"}, 0, []string{"dir/deep/c.csv"}, 0},
		"several":         {[]string{"*.txt", "*.csv", "z.*"}, 0, []string{"Z.csv", "a.csv", "z.txt"}, 0},
		"everything":      {[]string{"**"}, 0, []string{".hidden", "Z.csv", "a.csv", "dir/b.csv", "dir/d.txt", "dir/deep/c.csv", "z.txt"}, 0},
		"class":           {[]string{"[a-y]*"}, 0, []string{"a.csv"}, 0},
		"no-partial":      {[]string{"dir"}, 0, nil, 0},
		"limit":           {[]string{"**/*.csv"}, 2, []string{"Z.csv", "a.csv"}, 2},
		"exact-limit":     {[]string{"**/*.csv"}, 4, []string{"Z.csv", "a.csv", "dir/b.csv", "dir/deep/c.csv"}, 0},
	} {
		arts, omitted, err := driver.Collect(t.Context(), &executor.ArtifactRequest{Globs: c.globs, MaxFiles: c.max}, w.changed(all...), w.read)
		if err != nil || !slices.Equal(names(arts), c.want) || omitted != c.omitted {
			t.Errorf("%s: got %q, %d %v, want %q, %d", name, names(arts), omitted, err, c.want, c.omitted)
		}
		for _, a := range arts {
			if a.Data != nil || a.Size != int64(len(a.Name)) || !a.ModTime.Equal(time.Unix(1, 0)) {
				t.Errorf("%s: got %+v", name, a)
			}
		}
	}
	if arts, omitted, err := driver.Collect(t.Context(), nil, w.changed(all...), nil); arts != nil || omitted != 0 || err != nil {
		t.Errorf("got %v %d %v of no request", arts, omitted, err)
	}
	many := workdir{}
	for i := range 150 {
		many[strings.Repeat("x", i+1)] = ""
	}
	arts, omitted, err := driver.Collect(t.Context(), &executor.ArtifactRequest{}, many.changed(slices.Collect(keys(many))...), many.read)
	if err != nil || len(arts) != 100 || omitted != 50 {
		t.Errorf("got %d and %d omitted, want the default of 100", len(arts), omitted)
	}
}

func keys(w workdir) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range w {
			if !yield(k) {
				return
			}
		}
	}
}

func TestCollectRefusesNames(t *testing.T) {
	w := workdir{}
	hostile := []string{
		"", ".", "..", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/./b", "nul\x00", "\xff", strings.Repeat("n", 256),
		strings.Repeat("a/", 2100) + "b",
	}
	for _, n := range hostile {
		w[n] = "x"
	}
	w["good"] = "x"
	arts, omitted, err := driver.Collect(t.Context(), &executor.ArtifactRequest{}, w.changed(append(hostile, "good", "good", "gone")...), w.read)
	if err != nil || omitted != 0 || !slices.Equal(names(arts), []string{"good"}) {
		t.Errorf("got %q, %d %v", names(arts), omitted, err)
	}
}

func TestCollectContents(t *testing.T) {
	w := workdir{"a": "12345", "b": "123456789", "c": "", "d": "12", "grown": strings.Repeat("g", 3000), "shrunk": "s"}
	cs := w.changed("a", "b", "c", "d")
	cs = append(cs, driver.Changed{Name: "grown", Size: 1}, driver.Changed{Name: "shrunk", Size: 4}, driver.Changed{Name: "e", Size: -5})
	w["e"] = "e"
	arts, omitted, err := driver.Collect(t.Context(), &executor.ArtifactRequest{Contents: true, MaxBytes: 13}, cs, w.read)
	if err != nil || omitted != 0 {
		t.Fatal(omitted, err)
	}
	want := []struct {
		name string
		size int64
		data string
		has  bool
	}{
		{"a", 5, "12345", true},
		{"b", 9, "", false}, // 8 bytes are left
		{"c", 0, "", true},
		{"d", 2, "12", true},
		{"e", 1, "e", true},
		{"grown", 512, "", false}, // it said 1, and what was seen is more than what is left
		{"shrunk", 1, "s", true},
	}
	if len(arts) != len(want) {
		t.Fatalf("got %q", names(arts))
	}
	total := 0
	for i, a := range arts {
		w := want[i]
		if a.Name != w.name || a.Size != w.size || a.Data.String() != w.data || (a.Data != nil) != w.has {
			t.Errorf("got %q of %d bytes with %q (%v), want %+v", a.Name, a.Size, a.Data, a.Data != nil, w)
		}
		total += len(a.Data)
	}
	if total > 13 {
		t.Errorf("got %d bytes, want at most 13", total)
	}
	arts, _, err = driver.Collect(t.Context(), &executor.ArtifactRequest{Contents: true, MaxBytes: 5}, w.changed("a"), w.read)
	if err != nil || arts[0].Data.String() != "12345" {
		t.Errorf("got %+v %v of a file of exactly the limit", arts, err)
	}
}

// TestCollectIsBounded tests that a file without end costs no more than the limit.
func TestCollectIsBounded(t *testing.T) {
	n := 0
	endless := func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(readFunc(func(p []byte) (int, error) { n += len(p); return len(p), nil })), nil
	}
	for name, size := range map[string]int64{"lies": 1, "honest": 1 << 40} {
		n = 0
		req := &executor.ArtifactRequest{Contents: true, MaxBytes: 1 << 20}
		arts, _, err := driver.Collect(t.Context(), req, []driver.Changed{{Name: "x", Size: size}}, endless)
		if err != nil || arts[0].Data != nil || n > 3<<20 {
			t.Errorf("%s: got %+v %v after reading %d bytes", name, arts, err, n)
		}
	}
}

type failingClose struct{ io.Reader }

func (failingClose) Close() error { return errReset }

func TestCollectErrors(t *testing.T) {
	w := workdir{"a": "a", "b": "b", "c": "c"}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	opens := func(rc io.ReadCloser, err error) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return rc, err }
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		b    func() (io.ReadCloser, error) // instead of the file b
		want []string
		mime string // of b
		err  error
	}{
		"gone":             {t.Context(), opens(nil, fs.ErrNotExist), []string{"a", "c"}, "", nil},
		"not-allowed":      {t.Context(), opens(nil, &fs.PathError{Err: fs.ErrPermission}), []string{"a", "b", "c"}, "text/plain", nil},
		"a-directory-now":  {t.Context(), opens(nil, driver.Fail(fs.ErrInvalid, executor.RanNo, nil)), []string{"a", "b", "c"}, "text/plain", nil},
		"connection":       {t.Context(), opens(nil, errReset), []string{"a"}, "", errReset},
		"connection-later": {t.Context(), opens(io.NopCloser(iotest.ErrReader(errReset)), nil), []string{"a"}, "", errReset},
		"at-close":         {t.Context(), opens(failingClose{strings.NewReader("x")}, nil), []string{"a"}, "", errReset},
		"close-when-early": {t.Context(), opens(failingClose{bytes.NewReader(make([]byte, 4096))}, nil), []string{"a", "b", "c"}, "application/octet-stream", nil},
		"context":          {ctx, opens(nil, nil), nil, "", gone},
	} {
		read := func(ctx context.Context, name string) (io.ReadCloser, error) {
			if name == "b" {
				return c.b()
			}
			return w.read(ctx, name)
		}
		arts, _, err := driver.Collect(c.ctx, &executor.ArtifactRequest{}, w.changed("a", "b", "c"), read)
		if !errors.Is(err, c.err) || err != nil && c.err == nil || !slices.Equal(names(arts), c.want) {
			t.Errorf("%s: got %q %v, want %q %v", name, names(arts), err, c.want, c.err)
		}
		for _, a := range arts {
			if a.Name == "b" && a.MIME != c.mime {
				t.Errorf("%s: got %q, want %q", name, a.MIME, c.mime)
			}
		}
	}
}

func TestCollectTypes(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n rest"
	w := workdir{}
	want := map[string]string{}
	for _, c := range []struct{ name, data, mime string }{
		{"a.csv", "x,y\n1,2", "text/csv"},
		{"a.tsv", "x\ty", "text/tab-separated-values"},
		{"a.json", `{"a":1}`, "application/json"},
		{"a.html", "<p>", "text/html"},
		{"a.htm", "plain", "text/html"},
		{"a.md", "# title", "text/markdown"},
		{"a.svg", `<?xml version="1.0"?><svg/>`, "image/svg+xml"},
		{"b.SVG", "<svg/>", "image/svg+xml"},
		{"a.txt", "text", "text/plain"},
		{"report", "text", "text/plain"},
		{"page", "<!DOCTYPE html><p>", "text/html"},
		{"utf8", "grüße", "text/plain"},
		{"a.png", png, "image/png"},
		{"png-as.csv", png, "image/png"},
		{"text-as.png", "text", "text/plain"},
		{"bytes-as.svg", "\x00\x01\xff", "application/octet-stream"},
		{"bytes-as.csv", "\x00\x01\xff", "application/octet-stream"},
		{"a.xlsx", "PK\x03\x04rest", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
		{"a.zip", "PK\x03\x04rest", "application/zip"},
		{"a.pdf", "%PDF-1.7", "application/pdf"},
		{"empty", "", "text/plain"},
	} {
		w[c.name], want[c.name] = c.data, c.mime
	}
	arts, _, err := driver.Collect(t.Context(), &executor.ArtifactRequest{}, w.changed(slices.Collect(keys(w))...), w.read)
	if err != nil || len(arts) != len(w) {
		t.Fatalf("got %d of %d: %v", len(arts), len(w), err)
	}
	for _, a := range arts {
		if a.MIME != want[a.Name] {
			t.Errorf("%s: got %q, want %q", a.Name, a.MIME, want[a.Name])
		}
	}
}

// FuzzCollect tests that whatever a sandbox reports, only names below Workdir come out, sorted,
// once, and within the limits.
func FuzzCollect(f *testing.F) {
	f.Add("a\nb/c\n../d\n/e\n\xff\na", "**/*.x", 2, int64(3))
	f.Add("a/b/c/d\na/b", "a/**/d", 1, int64(0))
	f.Add("x", "[", 0, int64(1))
	f.Fuzz(func(t *testing.T, list, glob string, maxFiles int, maxBytes int64) {
		req := &executor.ArtifactRequest{Globs: []string{glob}, MaxFiles: maxFiles, MaxBytes: maxBytes, Contents: true}
		if (executor.Request{Code: "x", Artifacts: req}).Validate() != nil {
			req.Globs, req.MaxFiles, req.MaxBytes = nil, 0, 0
		}
		w := workdir{}
		for n := range strings.SplitSeq(list, "\n") {
			w[n] = n
		}
		arts, omitted, err := driver.Collect(t.Context(), req, w.changed(strings.Split(list, "\n")...), w.read)
		if err != nil || omitted < 0 || req.MaxFiles > 0 && len(arts) > req.MaxFiles {
			t.Errorf("got %d and %d omitted %v", len(arts), omitted, err)
		}
		last, total := "", int64(0)
		for _, a := range arts {
			if !fs.ValidPath(a.Name) || a.Name == "." || a.Name <= last || path.IsAbs(a.Name) {
				t.Errorf("got %q after %q", a.Name, last)
			}
			last, total = a.Name, total+int64(len(a.Data))
		}
		if req.MaxBytes > 0 && total > req.MaxBytes {
			t.Errorf("got %d bytes, want at most %d", total, req.MaxBytes)
		}
	})
}
