package packagestest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// Registry is a registry of npm packages.
type Registry struct {
	*httptest.Server
	Served   atomic.Int32                                  // number of archives
	Down     atomic.Bool                                   // answers are errors
	Answer   func(http.ResponseWriter, *http.Request) bool // called first; reports whether it has answered
	Archives map[string][]byte                             // archives by "name version"
	Manifest map[string]map[string]any                     // manifests by "name version"
}

// StartRegistry starts a registry without packages. The caller closes it.
func StartRegistry(l net.Listener) *Registry {
	r := &Registry{Archives: map[string][]byte{}, Manifest: map[string]map[string]any{}}
	r.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(r.serve)}}
	r.Start()
	return r
}

func (r *Registry) serve(w http.ResponseWriter, q *http.Request) {
	switch name, err := url.PathUnescape(strings.TrimPrefix(q.URL.EscapedPath(), "/")); {
	case r.Answer != nil && r.Answer(w, q):
	case err != nil || r.Down.Load():
		http.Error(w, "down", http.StatusServiceUnavailable)
	case strings.HasPrefix(name, "-/"):
		r.Served.Add(1)
		w.Write(r.Archives[strings.TrimPrefix(name, "-/")])
	default:
		versions := map[string]any{}
		var all []string
		for key, m := range r.Manifest {
			if n, v, _ := strings.Cut(key, " "); n == name {
				sum := sha512.Sum512(r.Archives[key])
				m = maps.Clone(m)
				m["dist"] = map[string]string{
					"tarball":   r.URL + "/-/" + url.PathEscape(key),
					"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
				}
				versions[v] = m
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			http.NotFound(w, q)
			return
		}
		slices.Sort(all)
		json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": all[len(all)-1]}, "versions": versions})
	}
}

// Entry is a file of an archive, or something that should not be in one.
type Entry struct {
	tar.Header
	Text string
}

// Pack makes an archive as npm does.
func Pack(entries ...Entry) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := e.Header
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(e.Text))
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err) // the entries are constants of tests
		}
		w.Write([]byte(e.Text))
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

// Named returns a regular file.
func Named(name, text string) Entry { return Entry{tar.Header{Name: name}, text} }

// Publish puts a package into the registry.
func (r *Registry) Publish(name, version string, manifest map[string]any, entries ...Entry) {
	m := map[string]any{"name": name, "version": version}
	maps.Copy(m, manifest)
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // the manifests are constants of tests
	}
	r.Manifest[name+" "+version] = m
	r.Archives[name+" "+version] = Pack(append([]Entry{Named("package/package.json", string(text))}, entries...)...)
}
