package pyodide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/execbroker/execbroker/executor"
)

// callRequest asks the host for something that is not a run. Which fields count depends on Op.
type callRequest struct {
	Op     string `json:"op"`
	Path   string `json:"path,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Mode   uint32 `json:"mode"`
	Token  uint32 `json:"token"`
	Offset int64  `json:"offset"`
	Max    int    `json:"max"`

	Names   []string       `json:"names,omitempty"`   // of "aliases"
	Entries []restoreEntry `json:"entries,omitempty"` // of "put"
	Parts   []restorePart  `json:"parts,omitempty"`   // of "fill"; the data of all of them follows
}

// callReply is the answer of the host.
type callReply struct {
	Errno   int         `json:"errno"` // of Emscripten
	Error   string      `json:"error"` // empty: it worked
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
	Mode   uint32  `json:"mode"` // with the type, as st_mode
	MTime  float64 `json:"mtime"`
	Target string  `json:"target"`
}

// call asks and waits for the answer. Frames that come before it go to each, which may be nil if
// there cannot be any. When ctx ends a call without each is abandoned: its answer is dropped when
// it comes. One with each goes on, because what it would miss is missing for good, so its ctx
// should end only when the process is to be ended as well.
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

// The numbers of Emscripten's errors.
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
	errnoACCES:       {fs.ErrPermission, "the code in the sandbox may not either"},
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
	errnoXDEV:        {fs.ErrInvalid, "it cannot be moved to there"},
}

// callError makes an error of a reply that says that it did not work.
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

// lost ends the process, if it has not ended, and says why no answer came.
func (h *host) lost(err error) error {
	h.kill()
	<-h.dead
	if why := h.reason(); why != nil && errors.Is(err, io.EOF) {
		err = why
	}
	return fmt.Errorf("%w: %w", errLost, err)
}
