package pyodide

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// zonesFile is the time zone database of the IANA, which is in the public domain, in the format of
// Go's lib/time. Its entries are named like the zones.
const zonesFile = "host/zoneinfo.zip"

// addZones copies an archive of Python's standard library and adds the package tzdata, which the
// module zoneinfo uses if the system has no time zones.
func addZones(to, from string) error {
	library, err := zip.OpenReader(from)
	if err != nil {
		return err
	}
	defer library.Close()
	b, err := hostFiles.ReadFile(zonesFile)
	if err != nil {
		return err
	}
	zones, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	w := zip.NewWriter(f)
	return errors.Join(mergeZones(w, &library.Reader, zones), w.Close(), f.Close())
}

func mergeZones(w *zip.Writer, library, zones *zip.Reader) error {
	for _, f := range library.File {
		if err := w.Copy(f); err != nil {
			return err
		}
	}
	add := func(name string, data []byte) error {
		to, err := w.Create(name) // without a time, so that the output is reproducible
		if err == nil {
			_, err = to.Write(data)
		}
		return err
	}
	packages := []string{"tzdata", "tzdata/zoneinfo"}
	var names []string
	for _, f := range zones.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		names = append(names, f.Name)
		for dir := path.Dir(f.Name); dir != "."; dir = path.Dir(dir) {
			if p := "tzdata/zoneinfo/" + dir; !slices.Contains(packages, p) {
				packages = append(packages, p)
			}
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		if err := add("tzdata/zoneinfo/"+f.Name, data); err != nil {
			return err
		}
	}
	for _, p := range packages {
		if err := add(p+"/__init__.py", nil); err != nil {
			return err
		}
	}
	slices.Sort(names)
	return add("tzdata/zones", []byte(strings.Join(names, "\n")+"\n"))
}
