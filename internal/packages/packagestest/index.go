// Package packagestest makes packages for tests, and serves them as package indexes and registries
// do.
package packagestest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Wheel returns a wheel in pure Python: its name and content.
func Wheel(name, version string, needs []string, files map[string]string) (string, []byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	meta := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, n := range needs {
		meta += "Requires-Dist: " + n + "\n"
		if _, extra, ok := strings.Cut(n, "extra == "); ok {
			meta += "Provides-Extra: " + strings.Trim(extra, `"`) + "\n"
		}
	}
	all := map[string]string{
		info + "METADATA": meta, info + "RECORD": "",
		info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	maps.Copy(all, files)
	for _, f := range slices.Sorted(maps.Keys(all)) {
		w, err := z.Create(f)
		if err != nil {
			return "", nil, err
		}
		if _, err := w.Write([]byte(all[f])); err != nil {
			return "", nil, err
		}
	}
	err := z.Close()
	return name + "-" + version + "-py3-none-any.whl", b.Bytes(), err
}

// Module returns the files of a package that contains only a version.
func Module(name, version string) map[string]string {
	return map[string]string{name + ".py": fmt.Sprintf("version = %q\n", version)}
}

// WriteWheels creates a directory of wheels: "alpha" in versions 1.0 and 2.0, "beta", which needs
// alpha 1, "gamma", which needs alpha 2, and "big" with 3 MiB.
func WriteWheels(dir string) error {
	for _, w := range []struct {
		name, version string
		needs         []string
		files         map[string]string
	}{
		{"alpha", "1.0", nil, Module("alpha", "1.0")},
		{"alpha", "2.0", nil, Module("alpha", "2.0")},
		{"beta", "1.0", []string{"alpha<2", `beta-extra; extra == "more"`}, Module("beta", "1.0")},
		{"beta_extra", "1.0", nil, Module("beta_extra", "1.0")},
		{"gamma", "1.0", []string{"alpha>=2"}, Module("gamma", "1.0")},
		{"six", "1.0", nil, Module("six", "1.0")},
		{"numpy", "99.0", nil, map[string]string{"numpy/__init__.py": "__version__ = '99.0'\n"}},
		{"big", "1.0", nil, map[string]string{"big.py": "x = '" + strings.Repeat("x", 3<<20) + "'\n"}},
		{"sly", "1.0", nil, map[string]string{"../../../tmp/sly.py": "", "sly.py": ""}},
	} {
		name, b, err := Wheel(w.name, w.version, w.needs, w.files)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Index is a simple index (PEP 503).
type Index struct {
	*httptest.Server
	Served atomic.Int32           // number of wheels
	Down   atomic.Bool            // answers are errors
	Hold   atomic.Pointer[func()] // called before each answer
}

// Pause makes the index report when it is asked, and delay its answers until the second channel is
// closed.
func (x *Index) Pause(t testing.TB) (asked <-chan struct{}, answer chan struct{}) {
	first, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hold := func() {
		once.Do(func() { close(first) })
		select {
		case <-answer:
		case <-t.Context().Done():
		}
	}
	x.Hold.Store(&hold)
	return first, answer
}

// StartIndex serves a directory of wheels. The caller closes the Index.
func StartIndex(l net.Listener, dir string) *Index {
	x := &Index{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /simple/{name}/", func(w http.ResponseWriter, r *http.Request) {
		entries, err := filepath.Glob(filepath.Join(dir, strings.ReplaceAll(r.PathValue("name"), "-", "_")+"-*.whl"))
		if err != nil || len(entries) == 0 {
			http.NotFound(w, r)
			return
		}
		for _, e := range entries {
			fmt.Fprintf(w, "<a href=\"/files/%s\">%[1]s</a>\n", filepath.Base(e))
		}
	})
	mux.HandleFunc("GET /files/{name}", func(w http.ResponseWriter, r *http.Request) {
		x.Served.Add(1)
		http.ServeFile(w, r, filepath.Join(dir, r.PathValue("name")))
	})
	x.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hold := x.Hold.Load(); hold != nil {
			(*hold)()
		}
		if x.Down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	})}}
	x.Start()
	return x
}
