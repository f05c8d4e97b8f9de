package executor

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"
)

// Files is the file system of a session. It has the same permissions as the code in the session.
// Names are separated by slashes, absolute or relative to Workdir, and cleaned as by path.Clean,
// without looking at links. These are fs.ErrInvalid: a relative name that climbs above Workdir, an
// empty name, a name with a NUL or that is not UTF-8, an element of more than 255 bytes, a name of
// more than 4095 bytes, and renaming or removing Workdir or a directory above it. Each of
// SessionInfo.Aliases means Workdir here; it is compared as text.
//
// Errors have the kinds fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid and
// ErrTooLarge in addition to those of the session, and RanNo. Without FeatureFilesDuringRun, every
// method fails with ErrBusy while code runs, and Run fails with ErrBusy while a file is being
// transferred. A transfer by Read lasts until the caller closes what Read returned.
// file is being transferred, which lasts until what Read returned is closed.
type Files interface {
	// Read opens a regular file. The caller must close it. ctx also governs the reading: when ctx
	// ends, or the session is closed, the next read fails.
	Read(ctx context.Context, name string) (io.ReadCloser, error)

	// Write creates or replaces a file and creates missing directories above it. The old content
	// stays until all of r has arrived, and if Write fails. Only the permission bits of mode count;
	// zero means 0o644. If reading r fails, the error is ErrInvalid and wraps the reader's error.
	Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error

	// Stat describes a file. It does not follow a symbolic link at the end of name. FileInfo.Name
	// is the base name of the cleaned absolute name.
	Stat(ctx context.Context, name string) (FileInfo, error)

	// List yields the entries of a directory in byte order of their names. Entries with names that
	// no method accepts are left out. The loop may use the session. An error ends the sequence.
	// More than 100,000 entries are ErrTooLarge.
	List(ctx context.Context, dir string) iter.Seq2[FileInfo, error]

	// Mkdir creates a directory and missing directories above it. It fails with fs.ErrExist if name
	// exists.
	Mkdir(ctx context.Context, name string) error

	// Rename moves a file or a tree atomically, within the file system of Workdir, and replaces an
	// existing file.
	Rename(ctx context.Context, from, to string) error

	// Remove removes a file or a tree. If name does not exist, that is not an error.
	Remove(ctx context.Context, name string) error
}

// FileInfo describes a file in a session.
type FileInfo struct {
	Name    string      `json:"name"` // base name
	Size    int64       `json:"size"`
	Mode    fs.FileMode `json:"mode"`
	ModTime time.Time   `json:"mod_time"`
	Target  string      `json:"target,omitempty"` // of a symbolic link
}
