package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// outDir is the directory for the files that code has created. The names come from the sandbox.
// Whatever they are, nothing is written outside of the directory, through a symbolic link, or to a
// hidden file such as .git/config.
type outDir struct {
	path string
	root *os.Root
	used map[string]bool // names in lower case, because some file systems ignore the case
}

// savedFile is a file that was written, also in JSON.
type savedFile struct {
	Name string `json:"name,omitempty"` // name in the sandbox; empty for a displayed image
	Path string `json:"path"`           // path on this machine
	MIME string `json:"mime"`
	Size int64  `json:"size"`
}

// openOutDir opens the directory and creates it if necessary.
func openOutDir(name string) (*outDir, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, usage("--out: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, usage("--out: %w", err)
	}
	return &outDir{path: name, root: root, used: map[string]bool{}}, nil
}

func (d *outDir) close() { d.root.Close() }

// save writes a file under a safe name that is similar to the given one.
func (d *outDir) save(name, mime string, r io.Reader) (savedFile, error) {
	local := d.unique(localName(name))
	f := savedFile{Path: filepath.Join(d.path, filepath.FromSlash(local)), MIME: mime}
	var err error
	if f.Size, err = d.write(local, r); err != nil {
		return f, fmt.Errorf("--out: %s: %w", plain(f.Path), err)
	}
	return f, nil
}

// remove removes a file that save has written.
func (d *outDir) remove(f savedFile) error {
	local, err := filepath.Rel(d.path, f.Path)
	if err == nil {
		err = d.root.Remove(local)
	}
	if err != nil {
		return fmt.Errorf("--out: %s: %w", plain(f.Path), err)
	}
	return nil
}

func (d *outDir) write(name string, r io.Reader) (n int64, err error) {
	if err := d.mkdir(path.Dir(name)); err != nil {
		return 0, err
	}
	switch old, err := d.root.Lstat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	case !old.Mode().IsRegular():
		return 0, fmt.Errorf("%w, and not a regular file", fs.ErrExist)
	}
	// Write to a temporary file first, so that the file appears complete or not at all, and a link
	// that is created meanwhile is replaced and not followed.
	part := path.Join(path.Dir(name), ".execbroker-"+rand.Text())
	w, err := d.root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err == nil {
		err = d.root.Rename(part, name)
	}
	if err != nil {
		d.root.Remove(part)
	}
	return n, err
}

// mkdir is like MkdirAll, but does not follow links.
func (d *outDir) mkdir(dir string) error {
	if dir == "." {
		return nil
	}
	if err := d.mkdir(path.Dir(dir)); err != nil {
		return err
	}
	err := d.root.Mkdir(dir, 0o755)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if old, err := d.root.Lstat(dir); err != nil || !old.IsDir() {
		return errors.Join(err, fmt.Errorf("%s is not a directory", plain(dir)))
	}
	return nil
}

// unique returns name, or a similar name that was not used yet.
func (d *outDir) unique(name string) string {
	stem, ext := strings.TrimSuffix(name, path.Ext(name)), path.Ext(name)
	for n := 2; d.used[strings.ToLower(name)]; n++ {
		name = fmt.Sprintf("%s-%d%s", stem, n, ext)
	}
	d.used[strings.ToLower(name)] = true
	return name
}

// The limits of a name: file systems allow 255 bytes for an element, and 4096 or, on Windows, 260
// for a path.
const (
	maxElement  = 120
	maxElements = 16
)

// localName turns a name from a sandbox into a relative name with slashes that is safe on every
// system.
func localName(name string) string {
	var elems []string
	for e := range strings.SplitSeq(name, "/") {
		if e != "" && e != "." && len(elems) < maxElements {
			elems = append(elems, localElement(e))
		}
	}
	if len(elems) == 0 {
		return "unnamed"
	}
	return path.Join(elems...)
}

func localElement(e string) string {
	e = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) || strings.ContainsRune(`\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, e)
	ext := path.Ext(e)
	if stem := strings.TrimSuffix(e, ext); len(e) > maxElement && len(ext) < 20 {
		e = cut(stem, maxElement-len(ext)) + ext
	}
	e = strings.TrimRight(cut(e, maxElement), ". ") // Windows drops these, so two names could become one
	if e == "" || e[0] == '.' || e[0] == '-' || reserved(e) {
		e = "_" + e // so that it is not hidden, an option, or a device
	}
	return e
}

// cut shortens s to at most n bytes without splitting a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// reserved reports whether Windows treats a name as a device.
func reserved(e string) bool {
	stem, _, _ := strings.Cut(strings.ToUpper(e), ".")
	switch stem = strings.TrimRight(stem, " "); stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	r := []rune(stem)
	return len(r) == 4 && (strings.HasPrefix(stem, "COM") || strings.HasPrefix(stem, "LPT")) && strings.ContainsRune("0123456789¹²³", r[3])
}

// images are the media types that are saved as images, in order of preference, with their file
// extensions.
var images = []struct{ mime, ending string }{
	{"image/png", ".png"},
	{"image/svg+xml", ".svg"},
	{"image/jpeg", ".jpg"},
	{"image/webp", ".webp"},
	{"image/gif", ".gif"},
	{"image/bmp", ".bmp"},
}

// maxArtifact bounds how much of a file is copied, whatever size it claims.
const maxArtifact = 4 << 30

// saveArtifact writes a file that a run has created. The content is part of the result if it was
// small enough. Otherwise it is downloaded.
func (d *outDir) saveArtifact(ctx context.Context, s executor.Session, a executor.Artifact) (savedFile, error) {
	var r io.Reader = bytes.NewReader(a.Data)
	if a.Data == nil && a.Size > 0 {
		f, err := s.Files().Read(ctx, path.Join(executor.Workdir, a.Name))
		if err != nil {
			return savedFile{}, err
		}
		defer f.Close()
		r = io.LimitReader(f, maxArtifact)
	}
	f, err := d.save(a.Name, a.MIME, r)
	f.Name = a.Name
	return f, err
}
