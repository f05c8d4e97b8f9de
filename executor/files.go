package executor

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"
)

// Files is the file system of a session, with the rights of the code in it. Names are
// slash-separated, absolute or relative to Workdir, and cleaned as path.Clean does, without looking
// at links. A relative name that climbs above Workdir is fs.ErrInvalid, and so are an empty name,
// one with a NUL or that is not UTF-8, elements of more than 255 and names of more than 4095 bytes,
// and renaming or removing Workdir or a directory above it. Each of SessionInfo.Aliases is Workdir
// here, as text.
//
// Errors have the kinds fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid and
// ErrTooLarge besides those of the session, and RanNo. While code runs, every method fails with
// ErrBusy unless the session has FeatureFilesDuringRun; without it a Run fails with ErrBusy while a
// file is being transferred, which lasts until what Read returned is closed.
type Files interface {
	// Read opens a regular file. The caller must close it. ctx governs the reading too: when it
	// ends, or the session is closed, the next read fails.
	Read(ctx context.Context, name string) (io.ReadCloser, error)

	// Write creates or replaces a file and makes the directories above it. The old content stays
	// until all of r is there, and if Write fails. Only the permission bits of mode count; zero
	// means 0o644. That reading r failed is ErrInvalid with its error.
	Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error

	// Stat does not follow a symbolic link at the end of name. FileInfo.Name is the base name of
	// the cleaned absolute name.
	Stat(ctx context.Context, name string) (FileInfo, error)

	// List yields the entries of a directory in byte order of their names, without those whose
	// names no method would take. The loop may use the session. An error ends it; more than 100,000
	// entries are ErrTooLarge.
	List(ctx context.Context, dir string) iter.Seq2[FileInfo, error]

	// Mkdir makes one directory and those above it. It fails with fs.ErrExist if name exists.
	Mkdir(ctx context.Context, name string) error

	// Rename moves a file or a tree at once, within the file system of Workdir, and replaces an
	// existing file.
	Rename(ctx context.Context, from, to string) error

	// Remove removes a file or a tree. A missing name is not an error.
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
