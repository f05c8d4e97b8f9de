package pyodide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"unicode/utf8"
)

// spool keeps the files of a session as of its last completed run, for the next process if this one has to be killed.
//
// The host sends what has changed after each run and each change from outside. Contents are appended to one file, which has no name, so
// that nothing is left behind when this process is killed; a file in the sandbox is a list of pieces of it. What was appended counts
// only when commit is called, so that a process that dies in the middle leaves everything as it was.
type spool struct {
	dir      string // for the file of contents
	maxBytes int64
	maxNodes int

	log  *os.File // nil before the first content
	end  int64    // of log
	tree map[string]spoolEntry
	data map[uint32]*spoolData

	changes []spoolChange         // since the last commit
	staged  map[uint32]*spoolData // contents as they will be
	err     error                 // why nothing can be restored any more
}

// spoolEntry is a path.
type spoolEntry struct {
	kind   uint8
	id     uint32 // of the contents of a file, and of the entry
	mode   uint32
	mtime  float64
	size   int64
	target string
}

// The kinds of entries, as in host/spool.mjs.
const (
	kindFile = 1
	kindDir  = 2
	kindLink = 3
	kindGone = 4
)

type spoolChange struct {
	path  string
	entry spoolEntry
}

// spoolData is the contents of a file: pieces in order, without overlap. What lies between them is zero.
type spoolData struct{ pieces []piece }

type piece struct{ off, at, n int64 } // n bytes at offset off in the file are at position at of the log

const (
	maxPath = 4096
	// slack is how much more than its quota the host may send: the quota counts differently at its edges.
	slackBytes = 16 * mib
	slackNodes = 1000
	// maxGarbage is how much of the log may be dead, besides as much as is alive.
	maxGarbage = 32 * mib
)

func newSpool(dir string, maxBytes int64, maxNodes int) *spool {
	return &spool{
		dir: dir, maxBytes: maxBytes + slackBytes, maxNodes: maxNodes + slackNodes,
		tree: map[string]spoolEntry{}, data: map[uint32]*spoolData{}, staged: map[uint32]*spoolData{},
	}
}

// frame takes a fromFile or fromData frame. The error is the host's fault; our own failures are kept in s.err.
func (s *spool) frame(f frame) error {
	if f.typ == fromData {
		id, off, data, err := decodeData(f.payload)
		if err != nil {
			return err
		}
		return s.content(id, off, data)
	}
	d := decoder{b: f.payload}
	e := spoolEntry{kind: d.u8()}
	whole := d.u8() == 1
	e.id, e.mode, e.mtime, e.size = d.u32(), d.u32()&0o7777, d.f64(), d.count()
	name := string(d.bytes(int(d.u16())))
	e.target = string(d.b)
	switch {
	case d.bad || len(name) > maxPath || len(e.target) > maxPath || !utf8.ValidString(name) || !utf8.ValidString(e.target),
		!path.IsAbs(name), path.Clean(name) != name, name == "/", e.size > s.maxBytes, !(math.Abs(e.mtime) < 1e16):
		return fmt.Errorf("%w: file entry", errFrame)
	case e.kind < kindFile || e.kind > kindGone:
		return fmt.Errorf("%w: file kind %d", errFrame, e.kind)
	case len(s.changes) > 4*s.maxNodes:
		return fmt.Errorf("%w: more changes than files", errFrame)
	}
	s.changes = append(s.changes, spoolChange{name, e})
	if e.kind == kindFile {
		sd := &spoolData{}
		if old := s.data[e.id]; old != nil && !whole {
			sd.pieces = slices.Clone(old.pieces)
		}
		s.staged[e.id] = sd
	}
	return nil
}

// decodeData decodes a fromData frame.
func decodeData(payload []byte) (id uint32, off int64, data []byte, err error) {
	d := decoder{b: payload}
	id, off = d.u32(), d.count()
	if d.bad {
		return 0, 0, nil, fmt.Errorf("%w: data", errFrame)
	}
	return id, off, d.b, nil
}

// content appends to the log what is new of a file.
func (s *spool) content(id uint32, off int64, data []byte) error {
	sd := s.staged[id]
	if sd == nil || off+int64(len(data)) > s.maxBytes {
		return fmt.Errorf("%w: data for file %d at %d", errFrame, id, off)
	}
	if s.err != nil || len(data) == 0 {
		return nil
	}
	if s.end > 4*s.maxBytes+maxGarbage {
		return fmt.Errorf("%w: more data than files", errFrame)
	}
	if s.log == nil {
		if s.err = s.open(); s.err != nil {
			return nil
		}
	}
	if _, err := s.log.WriteAt(data, s.end); err != nil {
		s.err = err
		return nil
	}
	sd.put(piece{off, s.end, int64(len(data))})
	s.end += int64(len(data))
	return nil
}

func (s *spool) open() error {
	f, err := os.CreateTemp(s.dir, "files-")
	if err != nil {
		return err
	}
	s.log = f
	os.Remove(f.Name()) // where open files cannot lose their name, close does it
	return nil
}

// put adds p over what is there.
func (d *spoolData) put(p piece) {
	// Nearly always contents come in order.
	if n := len(d.pieces); n > 0 {
		if l := &d.pieces[n-1]; l.off+l.n == p.off && l.at+l.n == p.at {
			l.n += p.n
			return
		}
	}
	d.cut(p.off, p.off+p.n)
	i, _ := slices.BinarySearchFunc(d.pieces, p.off, func(q piece, off int64) int { return int(min(max(q.off-off, -1), 1)) })
	d.pieces = slices.Insert(d.pieces, i, p)
}

// cut removes what lies from offset from up to offset to.
func (d *spoolData) cut(from, to int64) {
	var keep []piece
	for _, q := range d.pieces {
		if before := min(q.n, from-q.off); before > 0 {
			keep = append(keep, piece{q.off, q.at, before})
		}
		if after := min(q.n, q.off+q.n-to); after > 0 {
			keep = append(keep, piece{q.off + q.n - after, q.at + q.n - after, after})
		}
	}
	d.pieces = keep
}

// abort forgets what came since the last commit.
func (s *spool) abort() {
	s.changes = nil
	clear(s.staged)
}

// commit makes what came since the last one the state to restore. The error is the host's fault.
func (s *spool) commit() error {
	if len(s.changes) == 0 {
		return nil
	}
	for _, c := range s.changes {
		if c.entry.kind == kindGone {
			delete(s.tree, c.path)
			continue
		}
		s.tree[c.path] = c.entry
	}
	maps.Copy(s.data, s.staged)
	s.abort()
	var bytes, live int64
	used := map[uint32]bool{}
	for _, e := range s.tree {
		if e.kind != kindFile {
			continue
		}
		bytes += e.size
		used[e.id] = true
		if d := s.data[e.id]; d != nil {
			d.cut(e.size, s.maxBytes)
			for _, p := range d.pieces {
				live += p.n
			}
		}
	}
	maps.DeleteFunc(s.data, func(id uint32, _ *spoolData) bool { return !used[id] })
	if bytes > s.maxBytes || len(s.tree) > s.maxNodes {
		return fmt.Errorf("%w: more files than the quota allows", errFrame)
	}
	if s.err == nil && s.end > 2*live+maxGarbage {
		s.err = s.compact()
	}
	return nil
}

// compact writes a log that holds only what is alive.
func (s *spool) compact() error {
	old, end := s.log, s.end
	if err := s.open(); err != nil {
		return err
	}
	defer closeTemp(old)
	s.end = 0
	for _, id := range slices.Sorted(maps.Keys(s.data)) {
		d := s.data[id]
		for i, p := range d.pieces {
			if p.at+p.n > end {
				return errors.New("the log of files is damaged")
			}
			w := io.NewOffsetWriter(s.log, s.end)
			if _, err := io.Copy(w, io.NewSectionReader(old, p.at, p.n)); err != nil {
				return err
			}
			d.pieces[i].at = s.end
			s.end += p.n
		}
	}
	return nil
}

// close releases the file of contents.
func (s *spool) close() {
	if s.log != nil {
		closeTemp(s.log)
		s.log = nil
	}
}

func closeTemp(f *os.File) {
	f.Close()
	os.Remove(f.Name())
}

// restoreEntry and restorePart are how files come back.
type restoreEntry struct {
	Path   string  `json:"path"`
	Kind   uint8   `json:"kind"`
	ID     uint32  `json:"id"`
	Mode   uint32  `json:"mode"`
	MTime  float64 `json:"mtime"`
	Size   int64   `json:"size"`
	Target string  `json:"target"`
}

type restorePart struct {
	ID     uint32 `json:"id"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

// The sizes of batches: JSON may make names six times as long.
const (
	maxBatch = 64 << 10
	maxParts = 1000
)

// restore puts the files into a new process.
func (s *spool) restore(ctx context.Context, h *host) error {
	if s.err != nil {
		return s.err
	}
	if len(s.tree) == 0 {
		return nil
	}
	paths := slices.Sorted(maps.Keys(s.tree)) // a directory comes before what is in it
	put := callRequest{Op: "put"}
	for i, size := 0, 0; i < len(paths); i++ {
		p, e := paths[i], s.tree[paths[i]]
		put.Entries = append(put.Entries, restoreEntry{p, e.kind, e.id, e.mode, e.mtime, e.size, e.target})
		if size += len(p) + len(e.target) + 100; size < maxBatch && i < len(paths)-1 {
			continue
		}
		if _, err := h.call(ctx, put, nil, nil); err != nil {
			return err
		}
		put.Entries, size = nil, 0
	}
	fill := callRequest{Op: "fill"}
	var buf []byte
	flush := func() error {
		if len(fill.Parts) == 0 {
			return nil
		}
		_, err := h.call(ctx, fill, buf, nil)
		fill.Parts, buf = nil, buf[:0]
		return err
	}
	for _, p := range paths {
		e := s.tree[p]
		if e.kind != kindFile || s.data[e.id] == nil {
			continue
		}
		for _, q := range s.data[e.id].pieces {
			for done := int64(0); done < q.n; {
				n := min(q.n-done, chunkLen-int64(len(buf)))
				buf = slices.Grow(buf, int(n))[:len(buf)+int(n)]
				if _, err := s.log.ReadAt(buf[len(buf)-int(n):], q.at+done); err != nil {
					return err
				}
				fill.Parts = append(fill.Parts, restorePart{e.id, q.off + done, n})
				done += n
				if len(buf) >= chunkLen || len(fill.Parts) >= maxParts {
					if err := flush(); err != nil {
						return err
					}
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	_, err := h.call(ctx, callRequest{Op: "restored"}, nil, nil)
	return err
}
