package pyodide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/wire"
)

// call sends a request and waits for the answer. Data frames that arrive before it are passed to
// each, which may be nil if there are none. If ctx ends during a call without each, the call is
// abandoned, and its answer is dropped when it arrives. A call with each is not abandoned, because
// its frames are needed. So its ctx should end only if the process is to be ended as well.
func (h *host) call(ctx context.Context, req wire.Map, each func(wire.Frame) error) (wire.Map, error) {
	b := h.open()
	defer func() { h.close(b) }()
	if err := h.ask(ctx, b.id, req); err != nil {
		return nil, h.lost(err)
	}
	answer := wire.Parts{Max: maxEnd}
	for {
		f, err := b.next(ctx)
		switch {
		case err == io.EOF:
			return nil, h.lost(err)
		case err != nil && each == nil:
			h.abandon(b)
			return nil, err
		case err != nil:
			return nil, h.lost(err)
		case f.Type == wire.Done || f.Type == wire.Fail:
			var payload []byte
			if payload, err = answer.Add(f); err == nil && payload != nil {
				var m wire.Map
				if m, err = parseMap(payload); err == nil {
					return m, callError(f.Type, m)
				}
			}
		case each == nil || f.Type != wire.Data:
			err = fmt.Errorf("%w: %v in a call", errFrame, f.Type)
		default:
			err = each(f)
		}
		if err != nil {
			return nil, h.lost(err)
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
var errnos = map[int64]struct {
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

// callError returns the error of an answer.
func callError(t wire.Type, m wire.Map) error {
	e, ok := errnos[m.Int("errno")]
	switch {
	case t == wire.Done:
		return nil
	case !ok:
		return fmt.Errorf("the sandbox could not do it: error %d: %s", m.Int("errno"), m.Text("message"))
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
