package pyodide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/execbroker/execbroker/executor"
)

// callRequest is a request to the host that is not a run. Op says which fields are used.
type callRequest struct {
	Op     string `json:"op"`
	Path   string `json:"path,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Mode   uint32 `json:"mode"`
	Token  uint32 `json:"token"`
	Offset int64  `json:"offset"`
	Max    int    `json:"max"`

	Names   []string       `json:"names,omitempty"`   // for "aliases"
	Entries []restoreEntry `json:"entries,omitempty"` // for "put"
	Parts   []restorePart  `json:"parts,omitempty"`   // for "fill"; the data of all parts follows
}

// callReply is the answer of the host.
type callReply struct {
	Errno   int         `json:"errno"` // Emscripten's error number
	Error   string      `json:"error"` // empty: no error
	Token   uint32      `json:"token"`
	Size    int64       `json:"size"`
	Entries []callEntry `json:"entries"`
	data    []byte
	callEntry
}

// callEntry describes a file.
type callEntry struct {
	Name   string  `json:"name"`
	Bytes  int64   `json:"bytes"`
	Mode   uint32  `json:"mode"` // with the file type, as in st_mode
	MTime  float64 `json:"mtime"`
	Target string  `json:"target"`
}

// call sends a request and waits for the answer. Frames that arrive before it are passed to each,
// which may be nil if there are none. If ctx ends during a call without each, the call is
// abandoned, and its answer is dropped when it arrives. A call with each is not abandoned, because
// its frames are needed. So its ctx should end only if the process is to be ended as well.
func (h *host) call(ctx context.Context, req callRequest, data []byte, each func(frame) error) (r callReply, err error) {
	b := h.open()
	defer func() { h.close(b) }()
	if err := h.ask(ctx, toCall, b.id, envelope(req), data); err != nil {
		return r, h.lost(err)
	}
	for {
		f, err := b.next(ctx)
		switch {
		case err == io.EOF:
			return r, h.lost(err)
		case err != nil && each == nil:
			h.abandon(b)
			return r, err
		case err != nil:
			return r, h.lost(err)
		case f.typ == fromReply:
			if r.data, err = openEnvelope(f.payload, &r); err != nil {
				return r, h.lost(err)
			}
			if r.Error != "" {
				return r, callError(r)
			}
			return r, nil
		case each == nil || f.typ != fromFile && f.typ != fromData:
			return r, h.lost(fmt.Errorf("%w: type %d in a call", errFrame, f.typ))
		}
		if err := each(f); err != nil {
			return r, h.lost(err)
		}
	}
}

// Emscripten's error numbers.
const (
	errnoACCES       = 2
	errnoEXIST       = 20
	errnoINVAL       = 28
	errnoISDIR       = 31
	errnoLOOP        = 32
	errnoNAMETOOLONG = 37
	errnoNOENT       = 44
	errnoNOSPC       = 51
	errnoNOTDIR      = 54
	errnoNOTEMPTY    = 55
	errnoPERM        = 63
	errnoROFS        = 69
	errnoXDEV        = 75
)

// errnos says what the errors mean to a user of files.
var errnos = map[int]struct {
	kind error
	text string
}{
	errnoACCES:       {fs.ErrPermission, "the code in the sandbox has no permission either"},
	errnoEXIST:       {fs.ErrExist, ""},
	errnoINVAL:       {fs.ErrInvalid, "not a regular file, or a directory moved into itself"},
	errnoISDIR:       {fs.ErrInvalid, "it is a directory"},
	errnoLOOP:        {fs.ErrInvalid, "too many symbolic links"},
	errnoNAMETOOLONG: {fs.ErrInvalid, "the name is too long"},
	errnoNOENT:       {fs.ErrNotExist, ""},
	errnoNOSPC:       {executor.ErrTooLarge, "no space left in the sandbox; Limits.DiskBytes bounds it"},
	errnoNOTDIR:      {fs.ErrInvalid, "an element above it is not a directory"},
	errnoNOTEMPTY:    {fs.ErrExist, "the directory is not empty"},
	errnoPERM:        {fs.ErrPermission, ""},
	errnoROFS:        {fs.ErrPermission, ""},
	errnoXDEV:        {fs.ErrInvalid, "it cannot be moved there"},
}

// callError returns the error of a reply.
func callError(r callReply) error {
	e, ok := errnos[r.Errno]
	switch {
	case !ok:
		return fmt.Errorf("the sandbox could not do it: error %d: %s", r.Errno, r.Error)
	case e.text == "":
		return e.kind
	}
	return fmt.Errorf("%w: %s", e.kind, e.text)
}

// errLost says that the process ended before it answered.
var errLost = errors.New("the sandbox process ended")

// lost kills the process, if it is still running, and says why no answer came.
func (h *host) lost(err error) error {
	h.end()
	if why := h.reason(); why != nil && errors.Is(err, io.EOF) {
		err = why
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
