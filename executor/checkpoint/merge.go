package checkpoint

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// A Part is an archive from which Merge takes the variables and packages of one language.
type Part struct {
	Language executor.Language // Python or JavaScript
	Archive  []byte
}

// Merge returns one archive of several sessions of a conversation, each in another language, for a
// session that has all of them. It has the variables and packages of each part in its language, and
// the files of all. Where two parts have different files of one name, that of the later part stays,
// and Manifest.Omitted lists the other. The current directory is that of Python. Archives that
// Restore would refuse, and parts that have more than limit bytes together, are an error.
func Merge(parts []Part, limit int64) ([]byte, error) {
	all := archive{manifest: Manifest{Version: Version, Dir: "."}}
	m := &all.manifest
	files, told := map[string]entry{}, map[Omission]bool{} // two parts may come from one session
	for _, p := range slices.Backward(parts) {
		a, err := parse(bytes.NewReader(p.Archive), limit)
		if err != nil {
			return nil, fmt.Errorf("archive of %.50q: %w", p.Language, err)
		}
		was := *m
		switch p.Language {
		case executor.Python:
			*m, all.values = a.manifest, a.values
			m.JavaScript = was.JavaScript
		case executor.JavaScript:
			m.JavaScript, all.graph = a.manifest.JavaScript, a.graph
		default:
			return nil, fmt.Errorf("archive of %.50q: the language has no variables", p.Language)
		}
		m.Packages = was.Packages
		for _, some := range a.manifest.Packages {
			if some.Language == p.Language {
				m.Packages = append(m.Packages, some)
			}
		}
		m.Omitted = was.Omitted
		for _, o := range a.manifest.Omitted {
			if !told[o] {
				told[o], m.Omitted = true, append(m.Omitted, o)
			}
		}
		m.Omitted = append(m.Omitted, overlay(files, a.files)...)
	}
	for _, e := range files {
		all.files = append(all.files, e)
	}
	// Directories come before what is in them.
	slices.SortFunc(all.files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	merged, err := all.encode()
	if err == nil {
		_, err = parse(bytes.NewReader(merged), limit)
	}
	return merged, err
}

// overlay adds entries to files and leaves out those whose name, or a directory of it, is there as
// something else. It returns the files and links among these.
func overlay(files map[string]entry, entries []entry) (replaced []Omission) {
	for _, e := range entries {
		had, there := files[e.name]
		dir := path.Dir(e.name)
		switch {
		case there && had.mode == e.mode && had.target == e.target && bytes.Equal(had.data, e.data):
		case !there && (dir == "." || files[dir].mode.IsDir()):
			files[e.name] = e
		case !e.mode.IsDir():
			kind := "file"
			if e.mode.Type() == fs.ModeSymlink {
				kind = "link"
			}
			replaced = append(replaced, Omission{printable(e.name), kind, "another language has something else under this name, which was used later"})
		}
	}
	return replaced
}
