package jupyter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
)

// maxListed is the largest number of files in a directory that can be listed.
const maxListed = 10_000

// entry is what clients get to know of a file or a directory. The root has a directory for each
// kernel, with the files that the code of that kernel sees.
type entry struct {
	Name     string  `json:"name"`
	Path     string  `json:"path"`
	Type     string  `json:"type"` // "directory", "file" or "notebook"
	Created  string  `json:"created"`
	Modified string  `json:"last_modified"`
	Content  any     `json:"content"`
	Format   *string `json:"format"`
	MIME     *string `json:"mimetype"`
	Size     *int64  `json:"size"`
	Writable bool    `json:"writable"`
}

// The formats of contents.
var (
	formatJSON   = "json"
	formatText   = "text"
	formatBase64 = "base64"
)

// place is where a path is.
type place struct {
	kernel *kernel // nil: the root
	name   string  // within the working directory of the kernel
	path   string  // as clients write it
}

// place finds a path. Names in it are not cleaned: the backend refuses those outside of the working
// directory.
func (c *call) place(p string) (at place, err error) {
	p = strings.Trim(p, "/")
	if p == "" {
		return at, nil
	}
	id, name, _ := strings.Cut(p, "/")
	at = place{name: cmp.Or(name, "."), path: p}
	at.kernel, err = c.kernel(id)
	return at, err
}

// below makes an operation on a place below a kernel.
func (c *call) below(f func(context.Context, executor.Files, place) error) (at place, err error) {
	if at, err = c.place(c.r.PathValue("path")); err != nil {
		return at, err
	}
	if at.kernel == nil || at.name == "." {
		return at, refuse(http.StatusForbidden, "here are the files of kernels: want KERNEL/NAME, with the ID of a kernel")
	}
	return at, at.kernel.call(c.r.Context(), false, func(ctx context.Context, l *sessions.Lease) error { return f(ctx, l.Files(), at) })
}

// entryOf describes a file.
func entryOf(at place, i executor.FileInfo) entry {
	e := entry{Name: path.Base(at.path), Path: at.path, Type: "file", Created: stamp(i.ModTime), Modified: stamp(i.ModTime), Writable: true}
	switch {
	case i.Mode.IsDir():
		e.Type = "directory"
	case strings.HasSuffix(at.name, ".ipynb"):
		e.Type = "notebook"
	}
	if e.Type != "directory" {
		e.Size = &i.Size
	}
	return e
}

func (c *call) getContents() (int, any, error) {
	at, err := c.place(c.r.PathValue("path"))
	if err != nil {
		return 0, nil, err
	}
	if at.kernel == nil {
		return http.StatusOK, c.root(), nil
	}
	var e entry
	err = at.kernel.call(c.r.Context(), false, func(ctx context.Context, l *sessions.Lease) error {
		i, err := l.Files().Stat(ctx, at.name)
		if err != nil {
			return err
		}
		e = entryOf(at, i)
		if c.r.URL.Query().Get("content") == "0" {
			return nil
		}
		if e.Type == "directory" {
			return list(ctx, l.Files(), at, &e)
		}
		return c.read(ctx, l.Files(), at, &e)
	})
	return http.StatusOK, e, err
}

// root lists the kernels of the client.
func (c *call) root() entry {
	e := entry{Type: "directory", Created: stamp(c.started), Modified: stamp(c.started), Format: &formatJSON}
	all := []entry{}
	for _, k := range c.own() {
		all = append(all, entry{Name: k.id, Path: k.id, Type: "directory", Created: stamp(k.created), Modified: stamp(k.used()), Writable: true})
	}
	e.Content = all
	return e
}

// list adds the entries of a directory.
func list(ctx context.Context, files executor.Files, at place, e *entry) error {
	all := []entry{}
	for i, err := range files.List(ctx, at.name) {
		if err != nil {
			return err
		}
		if len(all) == maxListed {
			return refuse(http.StatusRequestEntityTooLarge, "the directory has more than %d files", maxListed)
		}
		if !i.Mode.IsDir() && !i.Mode.IsRegular() {
			continue // clients know no links
		}
		all = append(all, entryOf(place{name: i.Name, path: at.path + "/" + i.Name}, i))
	}
	e.Content, e.Format = all, &formatJSON
	return nil
}

// read adds the content of a file, in the form that the client wants or that fits.
func (c *call) read(ctx context.Context, files executor.Files, at place, e *entry) error {
	if *e.Size > c.cfg.MaxBody {
		return refuse(http.StatusRequestEntityTooLarge, "the file has more than %d bytes", c.cfg.MaxBody)
	}
	r, err := files.Read(ctx, at.name)
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, c.cfg.MaxBody)) // the file may have grown
	if err != nil {
		return err
	}
	kind := cmp.Or(mime.TypeByExtension(path.Ext(at.name)), "text/plain")
	q := c.r.URL.Query()
	switch {
	case e.Type == "notebook" && q.Get("type") != "file" && json.Valid(data):
		e.Content, e.Format = json.RawMessage(data), &formatJSON
		return nil
	case q.Get("format") == formatText && !utf8.Valid(data):
		return refuse(http.StatusBadRequest, "%.200s is not UTF-8", at.path)
	case q.Get("format") != formatBase64 && utf8.Valid(data):
		e.Content, e.Format = string(data), &formatText
	default:
		e.Content, e.Format = base64.StdEncoding.EncodeToString(data), &formatBase64
		kind = cmp.Or(mime.TypeByExtension(path.Ext(at.name)), "application/octet-stream")
	}
	e.Type, e.MIME = "file", &kind
	return nil
}

// putContents writes a file, or makes a directory.
func (c *call) putContents() (int, any, error) {
	var q struct {
		Type    string          `json:"type"`
		Format  string          `json:"format"`
		Content json.RawMessage `json:"content"`
		Chunk   *int            `json:"chunk"`
	}
	if err := c.body(&q); err != nil {
		return 0, nil, err
	}
	if q.Chunk != nil {
		return 0, nil, refuse(http.StatusNotImplemented, "files are written as a whole, of at most %d bytes", c.cfg.MaxBody)
	}
	var data []byte
	if q.Type == "notebook" || q.Format == formatJSON && q.Type != "directory" {
		data = q.Content
	} else if text := ""; q.Type != "directory" {
		err := json.Unmarshal(q.Content, &text)
		if data = []byte(text); err == nil && q.Format == formatBase64 {
			data, err = base64.StdEncoding.DecodeString(text)
		}
		if err != nil {
			return 0, nil, refuse(http.StatusBadRequest, "content: want text, in base64 if the format is that: %v", err)
		}
	}
	var e entry
	at, err := c.below(func(ctx context.Context, files executor.Files, at place) (err error) {
		if q.Type == "directory" {
			err = files.Mkdir(ctx, at.name)
		} else {
			err = files.Write(ctx, at.name, bytes.NewReader(data), 0)
		}
		if err != nil {
			return err
		}
		i, err := files.Stat(ctx, at.name)
		e = entryOf(at, i)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	c.w.Header().Set("Location", "/api/contents/"+at.path)
	return http.StatusCreated, e, nil
}

// renameContents moves a file within its kernel.
func (c *call) renameContents() (int, any, error) {
	var q struct {
		Path string `json:"path"`
	}
	if err := c.body(&q); err != nil {
		return 0, nil, err
	}
	to, err := c.place(q.Path)
	if err != nil {
		return 0, nil, err
	}
	var e entry
	_, err = c.below(func(ctx context.Context, files executor.Files, at place) error {
		if to.kernel != at.kernel || to.name == "." {
			return refuse(http.StatusForbidden, "path: a file stays with its kernel; want %s/NAME", at.kernel.id)
		}
		if _, err := files.Stat(ctx, to.name); err == nil {
			return refuse(http.StatusConflict, "%.200s exists", to.path)
		}
		if err := files.Rename(ctx, at.name, to.name); err != nil {
			return err
		}
		i, err := files.Stat(ctx, to.name)
		e = entryOf(to, i)
		return err
	})
	return http.StatusOK, e, err
}

func (c *call) deleteContents() (int, any, error) {
	_, err := c.below(func(ctx context.Context, files executor.Files, at place) error {
		if _, err := files.Stat(ctx, at.name); err != nil {
			return err
		}
		return files.Remove(ctx, at.name)
	})
	return http.StatusNoContent, nil, err
}
