// Package wheels finds, downloads and checks packages for Pyodide on the trusted side. Pyodide
// itself ignores a wrong checksum outside of a browser, and a sandbox that can download could also
// send data. So none of this happens in the sandbox: it gets bytes that were verified here.
//
// An [Index] is the set of packages that can be installed: those in the lock file of a Pyodide
// distribution, whose wheels are compiled for it, and pure Python wheels from a directory.
// Resolving follows dependencies inside the index. A [Store] downloads resolved wheels once, into a
// directory that several processes can share.
package wheels

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/internal/requirement"
)

// LockName is the name of the lock file in a distribution of Pyodide.
const LockName = "pyodide-lock.json"

// maxLock bounds a lock file. That of the whole distribution has 120 KB.
const maxLock = 16 << 20

// Wheel is a package that can be loaded. Its JSON form is that of the lock file, which Pyodide
// reads too.
type Wheel struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	File    string   `json:"file_name"` // base name
	SHA256  string   `json:"sha256"`    // of the file, hexadecimal
	Kind    string   `json:"package_type"`
	Install string   `json:"install_dir"`
	Imports []string `json:"imports"` // the modules that the package contains
	Depends []string `json:"depends"` // normalized names
	Tests   bool     `json:"unvendored_tests"`

	local string // path of the file, if it need not be downloaded
}

// Platform says for which platform the wheels of a lock file are built.
type Platform struct {
	ABI      string `json:"abi_version"`
	Arch     string `json:"arch"`
	Platform string `json:"platform"`
	Python   string `json:"python"`
}

// Index is the set of packages that can be installed. It never changes and may be shared.
type Index struct {
	Platform Platform
	wheels   map[string]Wheel // by normalized name
	imports  map[string]string
}

// lock is the file.
type lock struct {
	Info     Platform         `json:"info"`
	Packages map[string]Wheel `json:"packages"`
}

var (
	fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}$`)
	digest   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ReadLock reads a lock file. If dir is not empty, wheels that are in dir are read from there.
func ReadLock(path, dir string) (*Index, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxLock {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", path, st.Size(), maxLock)
	}
	var l lock
	if err := json.NewDecoder(f).Decode(&l); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	x := &Index{Platform: l.Info, wheels: map[string]Wheel{}, imports: map[string]string{}}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(l.Packages)) {
		w := l.Packages[key]
		if !fileName.MatchString(w.File) || !digest.MatchString(w.SHA256) || w.Version == "" {
			errs = append(errs, fmt.Errorf("%s: packages.%s: file name, checksum or version is missing or odd", path, key))
			continue
		}
		if dir != "" {
			if p := filepath.Join(dir, w.File); exists(p) {
				w.local = p
			}
		}
		x.add(key, w)
	}
	return x, errors.Join(errs...)
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func (x *Index) add(key string, w Wheel) {
	name := requirement.Normalize(key)
	w.Name = name
	// Pyodide reads these lists and does not accept null for an empty one.
	if w.Depends == nil {
		w.Depends = []string{}
	}
	if w.Imports == nil {
		w.Imports = []string{}
	}
	for i, d := range w.Depends {
		w.Depends[i] = requirement.Normalize(d)
	}
	x.wheels[name] = w
	for _, m := range w.Imports {
		// The tests of a package are imported under its name. An import of that name means the
		// package, not its tests.
		if old, ok := x.imports[m]; !ok || len(name) < len(old) {
			x.imports[m] = name
		}
	}
}

// With returns an index that also has the given wheels. They replace those of x with the same name.
func (x *Index) With(more ...Wheel) *Index {
	out := &Index{Platform: x.Platform, wheels: maps.Clone(x.wheels), imports: maps.Clone(x.imports)}
	for _, w := range more {
		for m, n := range out.imports {
			if n == requirement.Normalize(w.Name) {
				delete(out.imports, m)
			}
		}
		out.add(w.Name, w)
	}
	return out
}

// ForImports returns the packages that contain the given modules, in order. Unknown modules are
// left out: they may belong to the standard library or to the user.
func (x *Index) ForImports(modules []string) []string {
	var out []string
	for _, m := range modules {
		for ; m != ""; m = parent(m) {
			if n, ok := x.imports[m]; ok {
				out = append(out, n)
				break
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func parent(module string) string {
	i := strings.LastIndexByte(module, '.')
	return module[:max(i, 0)]
}

// Lock writes a lock file with only the given wheels, for Pyodide to load.
func (x *Index) Lock(ws []Wheel) ([]byte, error) {
	l := lock{Info: x.Platform, Packages: map[string]Wheel{}}
	for _, w := range ws {
		l.Packages[w.Name] = w
	}
	return json.Marshal(l)
}
