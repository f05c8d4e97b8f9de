package server

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/execbroker/execbroker/internal/front"
)

// maxListed is the largest number of files in a listing.
const maxListed = 10_000

// FileEntry is a file in a listing.
type FileEntry struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"` // "file", "directory", "link" or "other"
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// FileList is the listing of a directory.
type FileList struct {
	Files []FileEntry `json:"files"`
	More  bool        `json:"more"` // there are more files
}

// Written describes a file that was written.
type Written struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// transfer counts a file transfer.
func (s *Server) transfer(c Client) (done func(), err error) {
	return s.use(c, func(u *usage) *int { return &u.transfers }, s.cfg.MaxTransfers, "transfers", "")
}

func (s *Server) listFiles(_ http.ResponseWriter, r *http.Request, _ Client, b *session) (int, any, error) {
	dir := cmp.Or(r.URL.Query().Get("dir"), ".")
	files, more := []FileEntry{}, false
	for f, err := range b.Files().List(r.Context(), dir) {
		if err != nil {
			return 0, nil, s.gone(b, err)
		}
		if len(files) == maxListed {
			more = true
			break
		}
		e := FileEntry{Name: f.Name, Kind: "other", Size: f.Size, Modified: f.ModTime}
		switch {
		case f.Mode.IsRegular():
			e.Kind = "file"
		case f.Mode.IsDir():
			e.Kind = "directory"
		case f.Target != "":
			e.Kind = "link"
		}
		files = append(files, e)
	}
	return http.StatusOK, FileList{files, more}, nil
}

func (s *Server) readFile(w http.ResponseWriter, r *http.Request, c Client, b *session) (int, any, error) {
	ends, err := s.transfer(c)
	if err != nil {
		return 0, nil, err
	}
	defer ends()
	name := r.PathValue("name")
	info, err := b.Files().Stat(r.Context(), name)
	if err != nil {
		return 0, nil, s.gone(b, err)
	}
	if info.Size > s.cfg.MaxFile {
		return 0, nil, refuse(http.StatusRequestEntityTooLarge, "too-large", "the file has %d bytes; at most %d can be fetched", info.Size, s.cfg.MaxFile)
	}
	f, err := b.Files().Read(r.Context(), name)
	if err != nil {
		return 0, nil, s.gone(b, err)
	}
	defer f.Close()
	// Content from a sandbox must never run in a browser as if it came from this origin.
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	counted := &counter{w: w}
	_, err = io.Copy(counted, io.LimitReader(f, s.cfg.MaxFile))
	if err != nil && counted.n == 0 {
		for _, name := range []string{"Content-Disposition", "Content-Security-Policy"} {
			h.Del(name)
		}
		return 0, nil, err
	}
	if err != nil { // the client must not take a part of a file for the whole file
		s.cfg.Log.WarnContext(r.Context(), "sending a file", "id", requestID(r), "err", err)
		panic(http.ErrAbortHandler)
	}
	if counted.n == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return 0, nil, nil
}

// counter counts the bytes that were written.
type counter struct {
	w http.ResponseWriter
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (s *Server) writeFile(w http.ResponseWriter, r *http.Request, c Client, b *session) (int, any, error) {
	ends, err := s.transfer(c)
	if err != nil {
		return 0, nil, err
	}
	defer ends()
	if r.ContentLength > s.cfg.MaxFile {
		return 0, nil, &http.MaxBytesError{Limit: s.cfg.MaxFile}
	}
	front.Upload(r.Context())
	body := &arriving{r: http.MaxBytesReader(w, r.Body, s.cfg.MaxFile)}
	err = b.Files().Write(r.Context(), r.PathValue("name"), body, 0)
	if body.err != nil {
		if large := (*http.MaxBytesError)(nil); errors.As(body.err, &large) {
			return 0, nil, large
		}
		return 0, nil, refuse(http.StatusRequestTimeout, "invalid", "the body did not arrive; the file is unchanged")
	}
	if err != nil {
		return 0, nil, s.gone(b, err)
	}
	return http.StatusCreated, Written{r.PathValue("name"), body.n}, nil
}

// arriving records why a body did not arrive.
type arriving struct {
	r   io.Reader
	n   int64
	err error
}

// Read implements io.Reader.
func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	a.n += int64(n)
	if err != nil && err != io.EOF {
		a.err = err
	}
	return n, err
}

func (s *Server) removeFile(_ http.ResponseWriter, r *http.Request, _ Client, b *session) (int, any, error) {
	return http.StatusNoContent, nil, s.gone(b, b.Files().Remove(r.Context(), r.PathValue("name")))
}
