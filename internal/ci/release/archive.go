package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A node is a file in an archive, a link or a directory.
type node struct {
	from string // the file on this machine that has the content
	text string // the content, if from is empty
	link string // the target of a symbolic link
	mode fs.FileMode
	user int // the number of the owner, and of the group
}

// nodes are the contents of an archive by their slash-separated paths. Directories that only others
// are below need no node.
type nodes map[string]node

// addTree adds the regular files below a directory of this machine.
func (n nodes) addTree(dir, prefix string) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		n[path.Join(prefix, filepath.ToSlash(rel))] = node{from: name, mode: mode}
		return nil
	})
}

// withParents returns n with a node for each directory.
func (n nodes) withParents() nodes {
	all := maps.Clone(n)
	for name := range n {
		for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = node{mode: fs.ModeDir | 0o755}
			}
		}
	}
	return all
}

func (n node) open() (io.ReadCloser, int64, error) {
	if n.from == "" {
		return io.NopCloser(strings.NewReader(n.text)), int64(len(n.text)), nil
	}
	f, err := os.Open(n.from)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// writeTar writes nodes in the order of their names. The same nodes give the same bytes.
func writeTar(w io.Writer, all nodes, date time.Time) error {
	t := tar.NewWriter(w)
	all = all.withParents()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := all[name].writeTar(t, name, date); err != nil {
			return err
		}
	}
	return t.Close()
}

func (n node) writeTar(t *tar.Writer, name string, date time.Time) error {
	h := &tar.Header{Name: name, Mode: int64(n.mode.Perm()), Uid: n.user, Gid: n.user, ModTime: date, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
	if n.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case n.link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, n.link, 0o777
	case n.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	}
	if h.Typeflag != tar.TypeReg {
		return t.WriteHeader(h)
	}
	r, size, err := n.open()
	if err != nil {
		return err
	}
	defer r.Close()
	h.Size = size
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, r)
	return err
}

// writeTarGz is writeTar with compression.
func writeTarGz(w io.Writer, all nodes, date time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(z, all, date), z.Close())
}

// writeZip is writeTar for Windows, whose archives have no links and no directories.
func writeZip(w io.Writer, all nodes, date time.Time) error {
	z := zip.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: date}
		h.SetMode(all[name].mode)
		to, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		r, _, err := all[name].open()
		if err != nil {
			return err
		}
		_, err = io.Copy(to, r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return z.Close()
}

// archive makes the archive of a target.
func (m *maker) archive(target string) error {
	suffix, write := ".tar.gz", writeTarGz
	if strings.HasPrefix(target, "windows/") {
		suffix, write = ".zip", writeZip
	}
	name := m.file(target, suffix)
	top := strings.TrimSuffix(filepath.Base(name), suffix)
	program := m.program(target)
	all := nodes{
		path.Join(top, filepath.Base(program)): {from: program, mode: 0o755},
		path.Join(top, "LICENSE"):              {from: filepath.Join(m.root, "LICENSE"), mode: 0o644},
		path.Join(top, "CHANGELOG.md"):         {from: filepath.Join(m.root, "CHANGELOG.md"), mode: 0o644},
	}
	err := errors.Join(
		all.addTree(filepath.Join(m.work, "completions"), path.Join(top, "completions")),
		all.addTree(filepath.Join(m.work, "man"), path.Join(top, "man", "man1")),
	)
	if err != nil {
		return err
	}
	return create(name, func(w io.Writer) error { return write(w, all, m.source.date) })
}

// create makes a file by a function that writes it.
func create(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// gz returns compressed bytes.
func gz(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = z.Write(data); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}
