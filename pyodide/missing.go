package pyodide

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/execbroker/execbroker/internal/missing"
)

// The room on the disk that the installed packages and what is made from them take, with a margin,
// and below which a failure is one of room whatever its text is.
const (
	neededBytes = 200 << 20
	noBytes     = 16 << 20
)

// cacheVariable is the variable that says where the caches of a user are.
func cacheVariable() string {
	switch runtime.GOOS {
	case "windows":
		return "LocalAppData"
	case "darwin":
		return "HOME"
	}
	return "XDG_CACHE_HOME"
}

// noCache says that the cache directory cannot be used.
func noCache(what error) error {
	return missing.New("cache directory", what, fmt.Sprintf("let this user write there, or set %s to a directory where it may", cacheVariable()))
}

// writable returns an error unless files can be made in dir, or in the directory in which it would
// be made.
func writable(dir string) error {
	at := existing(dir)
	f, err := os.CreateTemp(at, ".execbroker-")
	if in := (*fs.PathError)(nil); errors.As(err, &in) {
		return noCache(fmt.Errorf("%s: %w", at, in.Err)) // the name of the file says nothing
	}
	if err != nil {
		return noCache(err)
	}
	f.Close()
	return os.Remove(f.Name())
}

// existing returns dir, or the first directory above it that is there.
func existing(dir string) string {
	for {
		_, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// room returns an error if the disk of dir has fewer bytes left. A system that does not say how
// many it has is not asked for them.
func room(dir string, bytes uint64) error {
	free, err := freeBytes(existing(dir))
	if err != nil || free >= bytes {
		return nil
	}
	return missing.New(
		"disk space", fmt.Errorf("%s: %d MB are left, and %d MB are needed", dir, free>>20, uint64(neededBytes)>>20),
		fmt.Sprintf("make room, or set %s to a directory on another disk", cacheVariable()),
	)
}

// explain returns what is missing on the machine if that explains why cache could not be filled.
func explain(cache string, err error) error {
	if m := (*missing.Error)(nil); errors.As(err, &m) {
		return err
	}
	if why := writable(cache); why != nil {
		return why
	}
	if why := room(cache, noBytes); why != nil {
		return why
	}
	return err
}
