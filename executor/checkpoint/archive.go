package checkpoint

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"
)

// Names of entries.
const (
	manifestName = "manifest.json"
	valuesName   = "python/values"
	graphName    = "javascript/values"
	filesDir     = "files/"
)

// block is the unit of a tar.
const block = 512

// An archive is the content of an archive, in memory: Make writes none by halves, and Restore
// checks all of it before it changes anything.
type archive struct {
	manifest Manifest
	values   []byte // of Python
	graph    []byte // of JavaScript; empty: none
	files    []entry
	size     int64 // of the tar; set by parse
}

// An entry is a directory, a regular file or a symbolic link.
type entry struct {
	name   string      // relative to Workdir
	mode   fs.FileMode // the type and, of a regular file, the permissions
	target string      // of a link
	data   []byte
}

// encode returns the tar.
func (a *archive) encode() ([]byte, error) {
	manifest, err := json.Marshal(a.manifest)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(h *tar.Header, data []byte) {
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	first := []entry{{name: manifestName, data: manifest}, {name: valuesName, data: a.values}}
	if len(a.graph) > 0 {
		first = append(first, entry{name: graphName, data: a.graph})
	}
	for _, e := range first {
		put(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o600, Size: int64(len(e.data))}, e.data)
	}
	for _, e := range a.files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: filesDir + e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data))}
		switch e.mode.Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case fs.ModeSymlink:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
		}
		put(h, e.data)
	}
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// parse reads a tar of at most limit bytes and checks it.
func parse(r io.Reader, limit int64) (*archive, error) {
	c := &counter{r: r, left: limit}
	t := tar.NewReader(c)
	a := &archive{}
	seen := map[string]fs.FileMode{}
	for n, end := 0, int64(0); ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			if n < 2 || c.n != end+2*block || c.used > end {
				return nil, errors.New("the archive ends too early")
			}
			if k, err := c.Read(make([]byte, 1)); k > 0 || !errors.Is(err, io.EOF) {
				return nil, errors.New("something follows the archive")
			}
			a.size = c.n
			if (len(a.graph) > 0) != (len(a.manifest.JavaScript) > 0) {
				return nil, errors.New("the variables of JavaScript are not those of the manifest")
			}
			return a, a.manifest.check(int64(len(a.values)))
		}
		if err != nil {
			return nil, err
		}
		if n >= MaxFiles+2+min(len(a.graph), 1) {
			return nil, fmt.Errorf("more than %d entries", MaxFiles)
		}
		if err := known(h); err != nil {
			return nil, err
		}
		if h.Size > limit || n == 0 && h.Size > maxManifest {
			return nil, errTooBig
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		end = (c.n + block - 1) / block * block
		switch {
		case n == 0:
			if h.Name != manifestName || h.Typeflag != tar.TypeReg {
				return nil, errors.New("it does not begin with a manifest")
			}
			if err := a.manifest.read(data); err != nil {
				return nil, fmt.Errorf("manifest: %w", err)
			}
		case n == 1:
			if h.Name != valuesName || h.Typeflag != tar.TypeReg {
				return nil, errors.New("it has no values")
			}
			a.values = data
		case n == 2 && h.Name == graphName && h.Typeflag == tar.TypeReg && h.Size > 0:
			a.graph = data
		default:
			e, err := file(h, seen)
			if err != nil {
				return nil, err
			}
			e.data = data
			a.files = append(a.files, e)
		}
	}
}

var errTooBig = errors.New("the archive exceeds its bound")

// read reads the JSON of a manifest. The version is looked at first, because other versions may
// have other fields.
func (m *Manifest) read(raw []byte) error {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if err := checkVersion(v.Version); err != nil {
		return err
	}
	return decode(raw, m)
}

// known refuses what Make does not write: other formats, sparse files, extended attributes.
func known(h *tar.Header) error {
	if h.Format&(tar.FormatUSTAR|tar.FormatPAX) == 0 {
		return errors.New("the format of an entry is not known")
	}
	for k := range h.PAXRecords {
		if k != "path" && k != "linkpath" && k != "size" {
			return fmt.Errorf("an entry has the record %.50q", k)
		}
	}
	return nil
}

// file checks the name and the type of an entry. seen has the types of those before.
func file(h *tar.Header, seen map[string]fs.FileMode) (e entry, err error) {
	name, ok := strings.CutPrefix(h.Name, filesDir)
	switch h.Typeflag {
	case tar.TypeReg:
		e.mode = fs.FileMode(h.Mode).Perm()
		ok = ok && h.Mode&^0o777 == 0
	case tar.TypeDir:
		e.mode = fs.ModeDir
		n, slash := strings.CutSuffix(name, "/")
		name, ok = n, ok && slash && h.Size == 0
	case tar.TypeSymlink:
		e.mode, e.target = fs.ModeSymlink, h.Linkname
		ok = ok && h.Size == 0
	default:
		return e, fmt.Errorf("%.200q has a type that is not known", h.Name)
	}
	if e.name = name; !ok || !validName(name) {
		return e, fmt.Errorf("%.200q is not the name of an entry", h.Name)
	}
	if _, twice := seen[name]; twice {
		return e, fmt.Errorf("%.200q is there twice", h.Name)
	}
	// Directories come first, so nothing can be below a file or a link.
	if dir := path.Dir(name); dir != "." && seen[dir] != fs.ModeDir {
		return e, fmt.Errorf("%.200q is in no directory", h.Name)
	}
	if e.mode == fs.ModeSymlink && !inside(name, e.target) {
		return e, fmt.Errorf("%.200q links to something outside", h.Name)
	}
	seen[name] = e.mode.Type()
	return e, nil
}

// validName reports whether Files would take a name, relative to Workdir, and Make would carry it.
func validName(name string) bool {
	if !fs.ValidPath(name) || name == "." || len(name) > 4000 || !utf8.ValidString(name) || strings.Contains(name, "\x00") || strings.Count(name, "/") > maxNested {
		return false
	}
	for e := range strings.SplitSeq(name, "/") {
		if len(e) > 255 || strings.HasPrefix(e, part) {
			return false
		}
	}
	return true
}

// inside reports whether a link leads to something below Workdir. ".." is allowed only at the
// beginning: behind the name of another link it would lead to somewhere else than the text says.
func inside(name, target string) bool {
	if target == "" || path.IsAbs(target) || path.Clean(target) != target || len(target) > 4000 || !utf8.ValidString(target) || strings.Contains(target, "\x00") {
		return false
	}
	return fs.ValidPath(path.Join(path.Dir(name), target))
}

// counter counts what is read, and fails behind a number of bytes.
type counter struct {
	r    io.Reader
	n    int64
	used int64 // offset behind the last byte that is not zero
	left int64
}

func (c *counter) Read(p []byte) (int, error) {
	if c.left < 0 {
		return 0, errTooBig
	}
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.r.Read(p)
	if used := len(bytes.TrimRight(p[:n], "\x00")); used > 0 {
		c.used = c.n + int64(used)
	}
	c.n += int64(n)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooBig
	}
	return n, err
}
