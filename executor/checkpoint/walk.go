package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/execbroker/execbroker/executor"
)

// Bounds of a walk, so that it ends whatever the code has made.
const (
	MaxFiles  = 10_000 // entries that Walk visits
	maxNested = 32     // directories within each other
)

// A File is an entry below executor.Workdir.
type File struct {
	Name string // relative to Workdir, as in fs.ValidPath
	Info executor.FileInfo
}

// Walk lists what is below executor.Workdir, in order of the names within each directory, and each
// directory before its entries. It does not follow links. omitted counts the entries beyond
// MaxFiles, those whose names are not valid, and the directories that are nested too deeply.
func Walk(ctx context.Context, files executor.Files) (found []File, omitted int, err error) {
	seen := 0
	var in func(dir string, depth int) error
	in = func(dir string, depth int) error {
		for i, err := range files.List(ctx, dir) {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the directory was removed meanwhile
			}
			if err != nil {
				return err
			}
			name := path.Join(dir, i.Name)
			if seen++; seen > MaxFiles || !fs.ValidPath(name) || i.Mode.IsDir() && depth >= maxNested {
				omitted++
				continue
			}
			found = append(found, File{name, i})
			if i.Mode.IsDir() {
				if err := in(name, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = in(".", 0)
	return found, omitted, err
}
