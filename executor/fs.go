package executor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"time"
)

// FS returns the files below Workdir as a read-only file system that works until ctx ends. It
// implements fs.ReadDirFS, fs.ReadFileFS, fs.StatFS and fs.ReadLinkFS. Errors are *fs.PathError
// around those of Files, so that errors.Is finds both fs.ErrNotExist and ErrBusy. An opened file
// requests its content at the first Read.
func FS(ctx context.Context, s Session) fs.FS { return &sessionFS{ctx: ctx, files: s.Files()} }

type sessionFS struct {
	ctx   context.Context // the methods of fs.FS have no context parameter
	files Files
}

var (
	_ fs.ReadDirFS  = (*sessionFS)(nil)
	_ fs.ReadFileFS = (*sessionFS)(nil)
	_ fs.StatFS     = (*sessionFS)(nil)
	_ fs.ReadLinkFS = (*sessionFS)(nil)
)

// maxLinks is how many symbolic links in a row Stat follows, as Linux does.
const maxLinks = 40

func (f *sessionFS) Open(name string) (fs.File, error) {
	info, err := f.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &openDir{fsys: f, name: name, info: info}, nil
	}
	return &openFile{fsys: f, name: name, info: info}, nil
}

func (f *sessionFS) Stat(name string) (fs.FileInfo, error) { return f.stat("stat", name) }

func (f *sessionFS) Lstat(name string) (fs.FileInfo, error) { return f.lstat("lstat", name) }

func (f *sessionFS) ReadLink(name string) (string, error) {
	i, err := f.lstat("readlink", name)
	if err != nil {
		return "", err
	}
	if i.Mode()&fs.ModeSymlink == 0 {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return i.info.Target, nil
}

func (f *sessionFS) ReadFile(name string) ([]byte, error) {
	rc, err := f.read("readfile", name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(rc)
	return data, pathError("readfile", name, errors.Join(err, rc.Close()))
}

func (f *sessionFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := valid("readdir", name); err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	for i, err := range f.files.List(f.ctx, name) {
		if err != nil {
			return entries, pathError("readdir", name, err)
		}
		entries = append(entries, fs.FileInfoToDirEntry(fileInfo{i}))
	}
	return entries, nil
}

func (f *sessionFS) read(op, name string) (io.ReadCloser, error) {
	if err := valid(op, name); err != nil {
		return nil, err
	}
	rc, err := f.files.Read(f.ctx, name)
	return rc, pathError(op, name, err)
}

func (f *sessionFS) lstat(op, name string) (fileInfo, error) {
	if err := valid(op, name); err != nil {
		return fileInfo{}, err
	}
	i, err := f.files.Stat(f.ctx, name)
	i.Name = path.Base(name)
	return fileInfo{i}, pathError(op, name, err)
}

// stat follows links, including those that lead out of Workdir: the boundary is the sandbox, not
// Workdir.
func (f *sessionFS) stat(op, name string) (fileInfo, error) {
	i, err := f.lstat(op, name)
	at := path.Join(Workdir, name)
	for range maxLinks {
		if err != nil || i.Mode()&fs.ModeSymlink == 0 {
			i.info.Name = path.Base(name)
			return i, err
		}
		if to := i.info.Target; path.IsAbs(to) {
			at = path.Clean(to)
		} else {
			at = path.Join(path.Dir(at), to)
		}
		i.info, err = f.files.Stat(f.ctx, at)
		err = pathError(op, name, err)
	}
	return fileInfo{}, &fs.PathError{Op: op, Path: name, Err: errors.New("too many links")}
}

func valid(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// fileInfo implements fs.FileInfo with a FileInfo.
type fileInfo struct{ info FileInfo }

func (i fileInfo) Name() string       { return i.info.Name }
func (i fileInfo) Size() int64        { return i.info.Size }
func (i fileInfo) Mode() fs.FileMode  { return i.info.Mode }
func (i fileInfo) ModTime() time.Time { return i.info.ModTime }
func (i fileInfo) IsDir() bool        { return i.info.Mode.IsDir() }
func (i fileInfo) Sys() any           { return i.info }

// openFile is an open file. Like other files, it is not for concurrent use.
type openFile struct {
	fsys   *sessionFS
	name   string
	info   fileInfo
	body   io.ReadCloser // nil until the first Read
	closed bool
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *openFile) Read(p []byte) (int, error) {
	if f.closed {
		return 0, pathError("read", f.name, fs.ErrClosed)
	}
	if f.body == nil {
		var err error
		if f.body, err = f.fsys.read("read", f.name); err != nil {
			f.body = nil
			return 0, err
		}
	}
	n, err := f.body.Read(p)
	if err != nil && err != io.EOF {
		err = pathError("read", f.name, err)
	}
	return n, err
}

func (f *openFile) Close() error {
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	if f.body == nil {
		return nil
	}
	return pathError("close", f.name, f.body.Close())
}

// openDir is an open directory. It is listed at the first ReadDir.
type openDir struct {
	fsys   *sessionFS
	name   string
	info   fileInfo
	listed bool
	rest   []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }

func (d *openDir) Close() error { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, pathError("read", d.name, errors.New("is a directory"))
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		var err error
		if d.rest, err = d.fsys.ReadDir(d.name); err != nil {
			return nil, err
		}
		d.listed = true
	}
	if n > 0 && len(d.rest) == 0 {
		return nil, io.EOF
	}
	if n <= 0 {
		n = len(d.rest)
	}
	n = min(n, len(d.rest))
	page := slices.Clone(d.rest[:n])
	d.rest = d.rest[n:]
	return page, nil
}
