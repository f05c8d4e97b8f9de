package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// disk is the file system of a sandbox, in memory. Names are clean and absolute. The code in the
// sandbox and the Files of its holders use the same one, with the same permissions: system
// directories cannot be changed.
type disk struct {
	mu    sync.Mutex
	root  *node
	quota int64 // zero: no quota
	used  int64
	clock int64 // counts changes
}

type node struct {
	mode    fs.FileMode // type and permissions
	system  bool
	data    []byte
	target  string
	entries map[string]*node
	mtime   time.Time
	changed int64 // disk.clock as of the last change
}

var (
	errNoSpace = errors.New("no space left on device")
	errLoop    = errors.New("too many levels of symbolic links")
)

// maxLinks is how many symbolic links one name may use.
const maxLinks = 40

// home is the home directory of the code.
const home = executor.Home

func newDisk(quota int64) *disk {
	d := &disk{quota: quota}
	dir := func(system bool) *node {
		return &node{mode: fs.ModeDir | 0o755, system: system, entries: map[string]*node{}, mtime: time.Now()}
	}
	d.root = dir(true)
	for _, name := range []string{executor.Workdir, "/tmp", home, "/etc", "/usr"} {
		at := d.root
		elems := strings.Split(strings.Trim(name, "/"), "/")
		for i, e := range elems {
			if at.entries[e] == nil {
				own := i == len(elems)-1 && name != "/etc" && name != "/usr"
				at.entries[e] = dir(!own)
			}
			at = at.entries[e]
		}
	}
	d.root.entries["etc"].entries["hostname"] = &node{mode: 0o644, system: true, data: []byte("sandbox\n"), mtime: time.Now()}
	return d
}

// alias makes name another name of the working directory, in system directories.
func (d *disk) alias(name string) error {
	at := d.root
	elems := strings.Split(strings.Trim(name, "/"), "/")
	for _, e := range elems[:len(elems)-1] {
		if at.entries[e] == nil {
			at.entries[e] = &node{mode: fs.ModeDir | 0o755, system: true, entries: map[string]*node{}, mtime: time.Now()}
		}
		if at = at.entries[e]; !at.mode.IsDir() || !at.system {
			return fmt.Errorf("alias %s: there is something else than a directory of the system above it", name)
		}
	}
	last := elems[len(elems)-1]
	if at.entries[last] != nil {
		return fmt.Errorf("alias %s: there is something of that name", name)
	}
	at.entries[last] = &node{mode: fs.ModeSymlink | 0o777, system: true, target: executor.Workdir, mtime: time.Now()}
	return nil
}

// walk finds the directory of name and its last element. With follow, it also follows a symbolic
// link at the end. The last element is empty for the root.
func (d *disk) walk(name string, follow bool) (dir *node, last string, err error) {
	links := 0
	rest := strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	trail := []*node{d.root}
	for {
		at := trail[len(trail)-1]
		if len(rest) == 0 || len(rest) == 1 && rest[0] == "" {
			return at, "", nil
		}
		elem := rest[0]
		switch elem {
		case ".", "":
			rest = rest[1:]
			continue
		case "..":
			if len(trail) > 1 {
				trail = trail[:len(trail)-1]
			}
			rest = rest[1:]
			continue
		}
		n := at.entries[elem]
		if n != nil && n.mode&fs.ModeSymlink != 0 && (len(rest) > 1 || follow) {
			if links++; links > maxLinks {
				return nil, "", &fs.PathError{Op: "open", Path: name, Err: errors.Join(fs.ErrInvalid, errLoop)}
			}
			rest = append(strings.Split(n.target, "/"), rest[1:]...)
			if path.IsAbs(n.target) {
				trail = trail[:1]
			}
			continue
		}
		if len(rest) == 1 {
			return at, elem, nil
		}
		switch {
		case n == nil:
			return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		case !n.mode.IsDir():
			return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
		}
		trail, rest = append(trail, n), rest[1:]
	}
}

// get returns the node of name, or fs.ErrNotExist.
func (d *disk) get(name string, follow bool) (*node, error) {
	dir, last, err := d.walk(name, follow)
	if err != nil {
		return nil, err
	}
	if last == "" {
		return dir, nil
	}
	if n := dir.entries[last]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (d *disk) info(name string, n *node) executor.FileInfo {
	return executor.FileInfo{Name: name, Size: int64(len(n.data)), Mode: n.mode, ModTime: n.mtime, Target: n.target}
}

func (d *disk) touch(n *node) {
	d.clock++
	n.changed, n.mtime = d.clock, time.Now()
}

// read returns the content of a regular file. The caller must not change it.
func (d *disk) read(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.get(name, true)
	switch {
	case err != nil:
		return nil, err
	case !n.mode.IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	case n.mode&0o400 == 0:
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrPermission}
	}
	return n.data, nil
}

// lock makes a file unreadable.
func (d *disk) lock(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.get(name, true)
	if err != nil {
		return err
	}
	n.mode &^= 0o777
	d.touch(n)
	return nil
}

// write replaces a file atomically. With parents, missing directories above it are created.
func (d *disk) write(name string, data []byte, mode fs.FileMode, parents bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.put(name, data, mode, parents)
}

// put is write for a caller that holds mu.
func (d *disk) put(name string, data []byte, mode fs.FileMode, parents bool) error {
	if parents {
		if err := d.mkdirs(path.Dir(name)); err != nil {
			return err
		}
	}
	dir, last, err := d.walk(name, true)
	if err != nil {
		return err
	}
	old := dir.entries[last]
	switch {
	case last == "", old != nil && !old.mode.IsRegular():
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrInvalid}
	case dir.system, old != nil && old.system:
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrPermission}
	}
	grow := int64(len(data))
	if old != nil {
		grow -= int64(len(old.data))
	}
	if d.quota > 0 && d.used+grow > d.quota {
		return &fs.PathError{Op: "write", Path: name, Err: errNoSpace}
	}
	d.used += grow
	if mode = mode.Perm(); mode == 0 {
		mode = 0o644
	}
	n := &node{mode: mode, data: data}
	dir.entries[last] = n
	d.touch(n)
	return nil
}

// mkdirs creates a directory and those above it.
func (d *disk) mkdirs(name string) error {
	at := "/"
	for elem := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		at = path.Join(at, elem)
		n, err := d.get(at, true)
		switch {
		case err == nil && n.mode.IsDir():
			continue
		case err == nil:
			return &fs.PathError{Op: "mkdir", Path: at, Err: fs.ErrInvalid}
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := d.add(at, &node{mode: fs.ModeDir | 0o755, entries: map[string]*node{}}); err != nil {
			return err
		}
	}
	return nil
}

// add puts a new node into its directory.
func (d *disk) add(name string, n *node) error {
	dir, last, err := d.walk(name, false)
	switch {
	case err != nil:
		return err
	case last == "" || dir.entries[last] != nil:
		return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	case dir.system:
		return &fs.PathError{Op: "create", Path: name, Err: fs.ErrPermission}
	}
	dir.entries[last] = n
	d.touch(n)
	return nil
}

// mkdirAll is mkdirs for the code, for which an existing directory is not an error.
func (d *disk) mkdirAll(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mkdirs(name)
}

// extend appends to a file.
func (d *disk) extend(name, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var old []byte
	if n, err := d.get(name, true); err == nil {
		old = n.data
	}
	return d.put(name, append(old, text...), 0, false) // readers of the old content do not see the new part
}

func (d *disk) mkdir(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, _ := d.get(name, false); n != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	return d.mkdirs(name)
}

func (d *disk) symlink(target, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.add(name, &node{mode: fs.ModeSymlink | 0o777, target: target})
}

func (d *disk) stat(name string) (executor.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.get(name, false)
	if err != nil {
		return executor.FileInfo{}, err
	}
	return d.info(path.Base(name), n), nil
}

func (d *disk) list(name string) ([]executor.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.get(name, true)
	switch {
	case err != nil:
		return nil, err
	case !n.mode.IsDir():
		return nil, &fs.PathError{Op: "list", Path: name, Err: fs.ErrInvalid}
	}
	var infos []executor.FileInfo
	for _, e := range slices.Sorted(maps.Keys(n.entries)) {
		infos = append(infos, d.info(e, n.entries[e]))
	}
	return infos, nil
}

func (d *disk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	fail := func(err error) error { return &fs.PathError{Op: "rename", Path: from, Err: err} }
	src, name, err := d.walk(from, false)
	if err != nil {
		return err
	}
	n := src.entries[name]
	if n == nil {
		return fail(fs.ErrNotExist)
	}
	dst, last, err := d.walk(to, false)
	if err != nil {
		return err
	}
	old := dst.entries[last]
	switch {
	case last == "" || n.mode.IsDir() && strings.HasPrefix(path.Clean(to)+"/", path.Clean(from)+"/") && path.Clean(to) != path.Clean(from):
		return fail(fs.ErrInvalid)
	case src.system || dst.system || n.system:
		return fail(fs.ErrPermission)
	case old == n:
		return nil
	case old != nil && (old.mode.IsDir() || n.mode.IsDir()):
		return fail(fs.ErrExist)
	case old != nil:
		d.used -= size(old)
	}
	delete(src.entries, name)
	dst.entries[last] = n
	d.touch(n)
	return nil
}

func (d *disk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, last, err := d.walk(name, false)
	switch n := (*node)(nil); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case last == "":
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
	default:
		if n = dir.entries[last]; n == nil {
			return nil
		}
		if dir.system || n.system {
			return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
		}
		delete(dir.entries, last)
		d.used -= size(n)
		return nil
	}
}

// size returns how much of the quota a tree uses.
func size(n *node) (sum int64) {
	sum = int64(len(n.data))
	for _, e := range n.entries {
		sum += size(e)
	}
	return sum
}

// mark returns the current point in time for changedSince.
func (d *disk) mark() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clock
}

// changedSince returns the regular files below the working directory that were created, changed or
// moved there after mark.
//
// If home is the working directory, files that programs keep there for themselves are left out.
func (d *disk) changedSince(mark int64, home string) (found []driver.Changed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var visit func(prefix string, n *node, moved bool)
	visit = func(prefix string, n *node, moved bool) {
		for name, e := range n.entries {
			name, moved := path.Join(prefix, name), moved || e.changed > mark
			if prefix == "" && strings.HasPrefix(name, ".") && d.atHome(home) {
				continue
			}
			if e.mode.IsRegular() && moved {
				found = append(found, driver.Changed{Name: name, Size: int64(len(e.data)), ModTime: e.mtime})
			}
			visit(name, e, moved)
		}
	}
	if w, err := d.get(executor.Workdir, true); err == nil {
		visit("", w, false)
	}
	return found
}

// atHome reports whether home is the working directory, under any of its names.
func (d *disk) atHome(home string) bool {
	n, err := d.get(home, true)
	workdir, werr := d.get(executor.Workdir, true)
	return err == nil && werr == nil && n == workdir
}

// open returns the content of a file below the working directory.
func (d *disk) open(_ context.Context, name string) (io.ReadCloser, error) {
	data, err := d.read(path.Join(executor.Workdir, name))
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
