package compat

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"

	"github.com/execbroker/execbroker/internal/front"
)

// keptFile is a file that is kept, under "session/id".
type keptFile struct {
	name, mime string
	data       []byte
}

// keep keeps a file in a session and returns its ID.
func (c *call) keep(session, name, media string, data []byte) (string, error) {
	id := newID()
	return id, c.kept.put(c.client.Subject, session+"/"+id, &keptFile{name, media, data}, int64(len(data)+len(name)))
}

// keepMade keeps the files that a run has made, tells each to made, and returns notes on those that
// are not kept.
func (c *call) keepMade(session string, o *outcome, made func(id, name string)) (notes string) {
	for _, f := range o.Artifacts {
		if int64(len(f.Data)) < f.Size {
			notes += tooLarge(f)
			continue
		}
		id, err := c.keep(session, f.Name, f.MIME, f.Data)
		if err != nil {
			notes += fmt.Sprintf("[%s is not kept: %v]\n", f.Name, err)
			continue
		}
		made(id, f.Name)
	}
	return notes + omitted(o)
}

// attach answers with a file. What code has made must never run in a browser as if it came from
// this origin.
func (c *call) attach(f *keptFile) {
	h := c.w.Header()
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(f.name)}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	front.Text(c.w, http.StatusOK, "application/octet-stream", f.data)
}

// form reads the files of a form, which is the body.
func (c *call) form() ([]file, error) {
	_, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, bad("want a form with files: multipart/form-data with a boundary")
	}
	body, err := c.body()
	if err != nil {
		return nil, err
	}
	return formFiles(body, params["boundary"])
}

// formFiles returns the files of a form.
func formFiles(body []byte, boundary string) (files []file, err error) {
	form := multipart.NewReader(bytes.NewReader(body), boundary)
	for n := 0; ; n++ {
		part, err := form.NextPart()
		switch {
		case err == io.EOF && len(files) > 0:
			return files, nil
		case err == io.EOF:
			return nil, bad("No file uploaded")
		case err != nil:
			return nil, bad("the form: %v", err)
		case n >= maxFiles:
			return nil, refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the form has more than %d parts", maxFiles)}
		case part.FileName() == "":
			continue
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, bad("the form: %v", err)
		}
		f := file{path.Base(part.FileName()), data}
		if err := (&call{}).check(job{files: []file{f}}); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
}
