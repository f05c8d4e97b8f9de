package e2b

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
)

const (
	maxUpload = 1 << 30 // of one request, after decompression
	maxParts  = 1000    // files of one request
)

func hash(s string) [sha256.Size]byte { return sha256.Sum256([]byte(s)) }

// mayTransfer checks who asks for a transfer, and as which user.
func (b *sandbox) mayTransfer(r *http.Request, operation string) error {
	if !sameToken(r.Header.Get("X-Access-Token"), b.token) {
		switch signed, expired := b.signed(r.URL.Query(), operation); {
		case !signed:
			return refuse(http.StatusUnauthorized, "invalid signature, or the header X-Access-Token is missing or wrong")
		case expired:
			return refuse(http.StatusUnauthorized, "signature is already expired")
		}
	}
	if err := (users{}).check(r.Header); err != nil {
		return err
	}
	return users{}.known(r.URL.Query().Get("username"))
}

// absolute returns the name that a path of a client means. The contract judges what is in it.
func (b *sandbox) absolute(name string) (string, error) {
	switch {
	case name == "":
		return "", refuse(http.StatusBadRequest, "path: is required")
	case name == "~" || strings.HasPrefix(name, "~/"):
		name = "." + name[1:]
	case name[0] == '~':
		return "", refuse(http.StatusBadRequest, "path %q: there are no other users here; relative paths are below %s", name, b.home)
	case name[0] == '/':
		return path.Clean(name), nil
	}
	abs := path.Join(b.home, name)
	if abs != b.home && !strings.HasPrefix(abs, b.home+"/") {
		return "", refuse(http.StatusBadRequest, "path %q: climbs above %s", name, b.home)
	}
	return abs, nil
}

func (b *sandbox) download(w http.ResponseWriter, r *http.Request) {
	err := b.mayTransfer(r, "read")
	var name string
	if err == nil {
		name, err = b.absolute(r.URL.Query().Get("path"))
	}
	if err != nil {
		writeError(w, err)
		return
	}
	front.Admit(r.Context())
	give, err := take(r.Context(), b.contexts.one)
	if err != nil {
		return // the client is gone
	}
	defer give()
	files := b.session.Files()
	info, err := files.Stat(r.Context(), name)
	if err == nil && info.Mode.IsDir() {
		err = refuse(http.StatusBadRequest, "path %q is a directory", name)
	}
	var f io.ReadCloser
	if err == nil {
		f, err = files.Read(r.Context(), name)
	}
	if err != nil {
		writeError(w, b.seen(err))
		return
	}
	content := &content{f: f, size: info.Size, open: func() (io.ReadCloser, error) { return files.Read(r.Context(), name) }}
	defer content.close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	large := largePieces{w}
	if info.Mode.IsRegular() {
		// A file that is cut short breaks the connection, since its length has been announced.
		http.ServeContent(large, r, "", info.ModTime, content)
		if content.changed() {
			panic(http.ErrAbortHandler)
		}
	} else if _, err := io.Copy(large, f); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// content is a file of which parts can be read. What is before them is read as well.
type content struct {
	open   func() (io.ReadCloser, error)
	size   int64
	f      io.ReadCloser // nil: to be opened again
	at     int64         // of f
	next   int64         // where to read
	failed bool
}

// Seek implements io.Seeker.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	c.next = map[int]int64{io.SeekStart: 0, io.SeekCurrent: c.next, io.SeekEnd: c.size}[whence] + offset
	return c.next, nil
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (n int, err error) {
	if c.f != nil && c.at > c.next {
		c.close()
	}
	if c.f == nil {
		if c.f, err = c.open(); err != nil {
			c.failed = true
			return 0, err
		}
		c.at = 0
	}
	if skipped, err := io.CopyN(io.Discard, c.f, c.next-c.at); err != nil { // it has become shorter
		c.at += skipped
		c.failed = true
		return 0, io.ErrUnexpectedEOF
	}
	n, err = c.f.Read(p)
	c.next += int64(n)
	c.at = c.next
	c.failed = c.failed || err != nil && err != io.EOF
	return n, err
}

// changed reports whether a file that was read to its end is not what its length says: it has
// grown, or was replaced.
func (c *content) changed() bool {
	if c.failed || c.f == nil || c.at < c.size {
		return c.failed
	}
	n, _ := c.f.Read(make([]byte, 1))
	return n > 0
}

func (c *content) close() {
	if c.f != nil {
		_ = c.f.Close() // it was read only
		c.f = nil
	}
}

// largePieces writes larger pieces than io.Copy.
type largePieces struct{ http.ResponseWriter }

// downloadBuffer is the most that is written at once.
const downloadBuffer = 256 << 10

// ReadFrom implements io.ReaderFrom.
func (w largePieces) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, downloadBuffer))
}

// written is what a client learns of a file that it has uploaded.
type written struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

func (b *sandbox) upload(w http.ResponseWriter, r *http.Request) {
	err := b.mayTransfer(r, "write")
	var said map[string]string
	if err == nil {
		said, err = metadataOf(r.Header)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	front.Admit(r.Context())
	front.Upload(r.Context())
	r.Body = http.MaxBytesReader(w, r.Body, maxUpload)
	give, err := take(r.Context(), b.contexts.one)
	if err != nil {
		return // the client is gone
	}
	defer give()
	done, err := b.store(r, said)
	if err != nil {
		writeError(w, b.seen(err))
		return
	}
	writeJSON(w, http.StatusOK, done)
}

// store writes the files of a body, and keeps what is said of each. Each is replaced as a whole or
// not at all.
func (b *sandbox) store(r *http.Request, said map[string]string) (done []written, err error) {
	var in io.Reader = r.Body
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not gzip: %v", err)
		}
		in = &boundedReader{z, maxUpload}
	default:
		return nil, refuse(http.StatusBadRequest, "Content-Encoding %q: want gzip or none", encoding)
	}
	write := func(name string, data io.Reader) error {
		abs, err := b.absolute(name)
		if err == nil {
			err = b.session.Files().Write(r.Context(), abs, data, 0)
		}
		if err == nil {
			err = b.said.set(abs, said)
		}
		if err == nil {
			done = append(done, written{Name: path.Base(abs), Path: abs, Type: "file", Metadata: said})
		}
		return err
	}
	name := r.URL.Query().Get("path")
	switch media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media {
	case "application/octet-stream":
		err = write(name, in)
	case "multipart/form-data":
		err = eachPart(in, params["boundary"], func(file string, data io.Reader) error {
			if name != "" {
				file = name
			}
			return write(file, data)
		})
		if err == nil && len(done) == 0 {
			err = refuse(http.StatusBadRequest, "the body has no part named file")
		}
	default:
		err = refuse(http.StatusUnsupportedMediaType, "Content-Type %q: want multipart/form-data or application/octet-stream", media)
	}
	// That reading failed is the client's doing, whatever the backend makes of it.
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		err = tooLarge
	} else if errors.Is(err, executor.ErrTooLarge) {
		err = refuse(http.StatusInsufficientStorage, "%v", err)
	}
	return done, err
}

// boundedReader fails where io.LimitReader would end.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, &http.MaxBytesError{Limit: maxUpload}
	}
	return n, err
}
