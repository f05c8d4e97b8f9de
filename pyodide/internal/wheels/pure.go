package wheels

import (
	"archive/zip"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/internal/requirement"
)

// The limits of a wheel in a directory, which may be untrusted.
const (
	maxWheel    = 512 << 20
	maxMetadata = 1 << 20
	maxEntries  = 100_000
)

// ReadDir reads the pure Python wheels of a directory. Other wheels run in Pyodide only if they
// were compiled for it, and then a lock file names them. If there are several versions, the last
// one in the order of file names is used.
func ReadDir(dir string) ([]Wheel, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var (
		out  []Wheel
		errs []error
	)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), "-none-any.whl") || e.IsDir() {
			continue
		}
		w, err := readWheel(filepath.Join(dir, e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = slices.DeleteFunc(out, func(o Wheel) bool { return o.Name == w.Name })
		out = append(out, w)
	}
	return out, errors.Join(errs...)
}

// readWheel reads what a wheel says about itself.
func readWheel(file string) (Wheel, error) {
	bad := func(format string, args ...any) (Wheel, error) {
		return Wheel{}, fmt.Errorf("%s: %w", file, fmt.Errorf(format, args...))
	}
	if !fileName.MatchString(filepath.Base(file)) {
		return bad("odd file name")
	}
	f, err := os.Open(file)
	if err != nil {
		return Wheel{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Wheel{}, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxWheel {
		return bad("not a regular file of at most %d bytes", maxWheel)
	}
	z, err := zip.NewReader(f, st.Size())
	if err != nil {
		return bad("%w", err)
	}
	if len(z.File) > maxEntries {
		return bad("%d entries, want at most %d", len(z.File), maxEntries)
	}
	w := Wheel{File: filepath.Base(file), Kind: "package", Install: "site", local: file, Imports: modules(z.File)}
	found := false
	for _, e := range z.File {
		if strings.HasSuffix(path.Dir(e.Name), ".dist-info") && path.Base(e.Name) == "METADATA" && strings.Count(e.Name, "/") == 1 {
			if err := w.metadata(e); err != nil {
				return bad("%s: %w", e.Name, err)
			}
			found = true
		}
	}
	if !found {
		return bad("no METADATA: not a wheel")
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, st.Size())); err != nil {
		return bad("%w", err)
	}
	w.SHA256 = hex.EncodeToString(h.Sum(nil))
	return w, nil
}

// maxUnpacked bounds the total unpacked size that the wheels of one installation may claim.
const maxUnpacked = 1 << 30

// Unpacked returns the unpacked size that a wheel claims, plus some space for its directories.
func Unpacked(wheel []byte) int {
	z, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	if err != nil {
		return 0 // unpacking will report the error
	}
	n := uint64(0)
	for _, f := range z.File {
		n = min(n+min(f.UncompressedSize64, maxUnpacked)+4096, maxUnpacked)
	}
	return int(n)
}

// metadata reads the name, version and dependencies. Dependencies with an environment marker about
// an extra are left out, because no extra was requested. Those with other markers are included.
func (w *Wheel) metadata(e *zip.File) error {
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	head, err := textproto.NewReader(bufio.NewReader(io.LimitReader(r, maxMetadata))).ReadMIMEHeader()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.Name, w.Version = requirement.Normalize(head.Get("Name")), head.Get("Version")
	if w.Name == "" || w.Version == "" {
		return errors.New("no name or version")
	}
	for _, d := range head.Values("Requires-Dist") {
		req, marker, _ := strings.Cut(d, ";")
		if strings.Contains(marker, "extra") {
			continue
		}
		p, err := requirement.Parse(req)
		if err != nil {
			return err
		}
		w.Depends = append(w.Depends, p.Name)
	}
	return nil
}

// modules returns the names that can be imported: files and directories at the top level.
func modules(files []*zip.File) []string {
	var out []string
	for _, f := range files {
		top, rest, nested := strings.Cut(f.Name, "/")
		switch {
		case strings.HasSuffix(top, ".dist-info"), strings.HasSuffix(top, ".data"), nested && rest == "":
			continue
		case !nested:
			if !strings.HasSuffix(top, ".py") {
				continue
			}
			top = strings.TrimSuffix(top, ".py")
		}
		out = append(out, top)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
