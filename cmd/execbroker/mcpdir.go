package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// The limits of a directory that is copied into sandboxes: most files and directories, and most
// bytes of all files together.
const (
	maxDirEntries = 2000
	maxDirBytes   = 64 << 20
)

// mirror copies the files of a directory into the sessions of a client, and what code makes of them
// back. The directory is never mounted. Hidden files, symbolic links and whatever else is no
// regular file stay where they are.
type mirror struct {
	out     *outDir
	confirm func(ctx context.Context, question string) bool

	mu       sync.Mutex
	sessions map[string]map[string]copied // by session and name
}

var _ tool.Mirror = (*mirror)(nil)

// copied is a file as it was when the directory and the session had the same.
type copied struct {
	size int64
	at   time.Time // modification in the directory
	sum  [sha256.Size]byte
}

// openMirror opens a directory that exists, and checks its limits.
func openMirror(dir string) (*mirror, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, usage("--dir: %w", err)
	}
	m := &mirror{out: &outDir{path: dir, root: root, used: map[string]bool{}}, confirm: mcp.Confirm, sessions: map[string]map[string]copied{}}
	if _, err := m.scan(); err != nil {
		root.Close()
		return nil, usage("--dir: %w", err)
	}
	return m, nil
}

func (m *mirror) close() { m.out.close() }

// scan lists the files of the directory that are copied.
func (m *mirror) scan() (files map[string]fs.FileInfo, err error) {
	files = map[string]fs.FileInfo{}
	entries, total := 0, int64(0)
	err = fs.WalkDir(m.out.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name != ".":
			return nil // it was removed meanwhile
		case err != nil:
			return err
		case name == ".":
			return nil
		}
		if entries++; entries > maxDirEntries {
			return fmt.Errorf("%s: more than %d files and directories; choose a smaller one", plain(m.out.path), maxDirEntries)
		}
		switch {
		case d.Name()[0] == '.' && d.IsDir():
			return fs.SkipDir
		case d.Name()[0] == '.' || !d.Type().IsRegular():
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if total += info.Size(); total > maxDirBytes {
			return fmt.Errorf("%s: the files have more than %s together; choose a smaller directory", plain(m.out.path), size(maxDirBytes))
		}
		files[name] = info
		return nil
	})
	return files, err
}

// known returns what was copied to a session. Each sandbox has a session of its own.
func (m *mirror) known(s executor.Session) map[string]copied {
	h := s.Info().Handle
	id := h.Backend + "\x00" + h.Session
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[id] == nil {
		m.sessions[id] = map[string]copied{}
	}
	return m.sessions[id]
}

// Enter implements tool.Mirror. It copies the files that are new or have changed since the last
// call.
func (m *mirror) Enter(ctx context.Context, s executor.Session) error {
	files, err := m.scan()
	if err != nil {
		return &tool.InputError{Problems: []string{fmt.Sprintf("The directory of the user cannot be copied: %v. Tell the user. Nothing was run.", err)}}
	}
	known := m.known(s)
	for name, info := range files {
		old, had := known[name]
		if had && old.size == info.Size() && old.at.Equal(info.ModTime()) {
			continue
		}
		data, now, err := m.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return &tool.InputError{Problems: []string{fmt.Sprintf("The file %.80q of the user cannot be copied: %v. Tell the user. Nothing was run.", name, err)}}
		}
		if !had || old.sum != now.sum {
			if err := s.Files().Write(ctx, name, bytes.NewReader(data), 0); err != nil {
				return err
			}
		}
		known[name] = now
	}
	return nil
}

// read reads a file of the directory. It does not follow a link out of the directory.
func (m *mirror) read(name string) (data []byte, now copied, err error) {
	info, err := m.out.root.Lstat(name)
	if err != nil {
		return nil, now, err
	}
	if !info.Mode().IsRegular() {
		return nil, now, fmt.Errorf("%w: it is not a regular file", fs.ErrExist)
	}
	f, err := m.out.root.Open(name)
	if err != nil {
		return nil, now, err
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, maxDirBytes+1))
	if err == nil && len(data) > maxDirBytes {
		err = fmt.Errorf("more than %s", size(maxDirBytes))
	}
	return data, copied{info.Size(), info.ModTime(), sha256.Sum256(data)}, err
}

// Leave implements tool.Mirror. It copies what a run has made to the directory. A file that has
// changed in the directory meanwhile is replaced only if the user agrees.
func (m *mirror) Leave(ctx context.Context, s executor.Session, changed []executor.Artifact) (remarks []string) {
	known := m.known(s)
	left := int64(maxDirBytes)
	for _, a := range changed {
		remark, err := m.save(ctx, s, known, a, &left)
		if err != nil {
			remark = fmt.Sprintf("%.80q was not copied to the directory of the user: %v", a.Name, err)
		}
		if remark != "" {
			remarks = append(remarks, remark)
		}
	}
	return remarks
}

func (m *mirror) save(ctx context.Context, s executor.Session, known map[string]copied, a executor.Artifact, left *int64) (remark string, err error) {
	data, err := m.content(ctx, s, a, *left)
	if err != nil {
		return "", err
	}
	*left -= int64(len(data))
	name := localName(a.Name)
	switch _, now, err := m.read(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	case now.sum == sha256.Sum256(data):
		known[name] = now
		return "", nil
	default:
		if old, had := known[name]; had && old.sum == now.sum {
			break
		}
		if m.confirm(ctx, fmt.Sprintf("The code changed %q, and so did somebody else in %s. Replace the file with what the code made?", name, plain(m.out.path))) {
			break
		}
		theirs := name
		if name, err = m.free(name); err != nil {
			return "", err
		}
		remark = fmt.Sprintf("%q is another file in the directory of the user, so what the code made is %q there. The next call gets both from there", theirs, name)
	}
	if _, err := m.out.write(name, bytes.NewReader(data)); err != nil {
		return "", err
	}
	_, now, err := m.read(name)
	if err != nil {
		return "", err
	}
	if name == a.Name { // the session has the same; otherwise the next call gets the file under its new name
		known[name] = now
	}
	if remark == "" && name != a.Name {
		remark = fmt.Sprintf("%.80q is %q in the directory of the user", a.Name, name)
	}
	return remark, nil
}

// content returns the content of a file that a run has made.
func (m *mirror) content(ctx context.Context, s executor.Session, a executor.Artifact, most int64) ([]byte, error) {
	if a.Size > most {
		return nil, fmt.Errorf("the files of one call may have %s together", size(maxDirBytes))
	}
	if a.Data != nil || a.Size == 0 {
		return a.Data, nil
	}
	f, err := s.Files().Read(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the files of one call may have %s together", size(maxDirBytes))
	}
	return data, err
}

// free returns a name like name that the directory does not have.
func (m *mirror) free(name string) (string, error) {
	ext := path.Ext(name)
	for n := 2; n < maxDirEntries; n++ {
		other := fmt.Sprintf("%s-%d%s", name[:len(name)-len(ext)], n, ext)
		if _, err := m.out.root.Lstat(other); errors.Is(err, fs.ErrNotExist) {
			return other, nil
		}
	}
	return "", fmt.Errorf("%w: there are too many files like %q", fs.ErrExist, name)
}
