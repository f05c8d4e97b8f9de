package pyodide

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/execbroker/execbroker/internal/wire"
)

// spool keeps the files of a session as of its last completed run, for the next process if this one
// must be killed.
//
// The host sends the changes after each run and each change from outside: first removed entries,
// then each new or changed entry, and after a file one span of its contents. Contents are appended
// to one anonymous file, so that nothing is left behind if this process is killed. A file in the
// sandbox is a list of pieces of that log. Appended data takes effect only when commit is called,
// so that a process that dies in between changes nothing.
//
// The host runs untrusted code. Anything that a working host never sends is refused, so that the
// cost of each byte is constant.
type spool struct {
	dir      string // directory for the log of contents
	maxBytes int64
	maxNodes int

	log    *os.File // nil before the first content
	end    int64    // size of log
	tree   map[string]spoolEntry
	data   map[int64]*spoolData // contents of the files in tree
	bytes  int64                // total size of the files in tree
	pieces int                  // number of pieces in data

	changes []spoolChange       // since the last commit
	paths   map[string]struct{} // paths in changes
	ids     map[int64]struct{}  // IDs of the files in changes
	coming  int64               // bytes of contents in changes
	err     error               // why the files can no longer be restored

	steps int // work so far: frames, and pieces that were visited
}

// spoolEntry is an entry of the file system.
type spoolEntry struct {
	kind   int64
	id     int64 // identifies the contents of a file, and the entry
	mode   int64
	mtime  int64 // ns
	size   int64
	target string
}

// bytes returns how much the entry counts in the quota.
func (e spoolEntry) bytes() int64 {
	if e.kind == kindFile {
		return e.size
	}
	return 0
}

// The kinds of entries, as in host/spool.mjs.
const (
	kindFile = 1
	kindDir  = 2
	kindLink = 3
	kindGone = 4
)

// spoolChange is a path that has changed and, for a file, its new contents.
type spoolChange struct {
	path  string
	entry spoolEntry
	old   int64 // size of the contents so far
	from  int64 // where the new ones begin
	span  piece
	short bool // the last frame of the span has arrived; no further one may follow
}

// spoolData is the contents of a file: pieces in order and without holes.
type spoolData struct {
	pieces []piece
	size   int64
	path   string
}

type piece struct{ off, at, n int64 } // n bytes at offset off in the file are at position at of the log

const (
	maxPath = 4096
	// slack is how much more than its quota the host may send, because the quota is counted a
	// little differently.
	slackBytes = 16 * mib
	slackNodes = 1000
	// maxGarbage is how much of the log may be unused, in addition to as much as is used. maxSpare
	// is how many pieces there may be in addition to two for each entry.
	maxGarbage = 32 * mib
	maxSpare   = 10_000
	// spanChunk is the size of a span's part in each frame except the last.
	spanChunk = 32 << 10
)

func newSpool(dir string, maxBytes int64, maxNodes int) *spool {
	return &spool{
		dir: dir, maxBytes: maxBytes + slackBytes, maxNodes: maxNodes + slackNodes,
		tree: map[string]spoolEntry{}, data: map[int64]*spoolData{}, paths: map[string]struct{}{}, ids: map[int64]struct{}{},
	}
}

// frame handles a Data frame: a change, or contents of the file before it. An error is a fault of
// the host. Our own failures are stored in s.err.
func (s *spool) frame(f wire.Frame) error {
	s.steps++
	switch f.Channel {
	case wire.Contents:
		return s.content(f.Payload)
	case wire.Entries:
	default:
		return fmt.Errorf("%w: output among files", errFrame)
	}
	m, err := parseMap(f.Payload)
	if err != nil {
		return err
	}
	c := spoolChange{path: m.Text("path"), from: m.Int("from"), entry: spoolEntry{
		kind: m.Int("kind"), id: m.Int("id"), mode: m.Int("mode") & 0o7777, mtime: m.Int("mtime"), size: m.Int("size"), target: m.Text("target"),
	}}
	e := c.entry
	switch {
	case len(c.path) > maxPath || len(e.target) > maxPath || !utf8.ValidString(c.path) || !utf8.ValidString(e.target),
		!path.IsAbs(c.path), path.Clean(c.path) != c.path, c.path == "/", e.size < 0, e.size > s.maxBytes, c.from < 0:
		return fmt.Errorf("%w: file entry", errFrame)
	case e.kind < kindFile || e.kind > kindGone:
		return fmt.Errorf("%w: file kind %d", errFrame, e.kind)
	}
	if err := s.whole(); err != nil {
		return err
	}
	return s.change(c, m.Bool("whole"))
}

// change handles a change of a path. There may be one for each path between two commits.
func (s *spool) change(c spoolChange, whole bool) error {
	_, again := s.paths[c.path]
	_, known := s.tree[c.path]
	if again || c.entry.kind == kindGone && !known || len(s.changes) > 2*s.maxNodes {
		return fmt.Errorf("%w: change of a file that cannot have changed", errFrame)
	}
	if c.entry.kind == kindFile {
		d := s.data[c.entry.id]
		if _, again := s.ids[c.entry.id]; again || whole != (d == nil) {
			return fmt.Errorf("%w: file %d, which is another one", errFrame, c.entry.id)
		}
		if d != nil {
			c.old = d.size
		}
		s.ids[c.entry.id] = struct{}{}
	}
	s.paths[c.path] = struct{}{}
	s.changes = append(s.changes, c)
	return nil
}

// last returns the last change.
func (s *spool) last() *spoolChange {
	if len(s.changes) == 0 {
		return nil
	}
	return &s.changes[len(s.changes)-1]
}

// whole returns an error if contents of the last file are missing.
func (s *spool) whole() error {
	c := s.last()
	if c == nil || c.entry.kind != kindFile {
		return nil
	}
	if size := c.entry.size; size > c.old && c.span.off+c.span.n != size {
		return fmt.Errorf("%w: file %d has %d bytes, and not all have come", errFrame, c.entry.id, size)
	}
	return nil
}

// content appends new contents of the last file to the log, from where its change says. They arrive
// in order, in frames of the same size except the last.
func (s *spool) content(data []byte) error {
	c, n := s.last(), int64(len(data))
	switch {
	case c == nil || c.entry.kind != kindFile || c.short || n == 0 || n > spanChunk || c.from > c.old || c.from+c.span.n+n > c.entry.size:
		return fmt.Errorf("%w: contents that no file has", errFrame)
	case s.coming+n > s.maxBytes:
		return fmt.Errorf("%w: more data than files", errFrame)
	}
	if c.span.n == 0 {
		c.span.off, c.span.at = c.from, s.end
	}
	c.span.n += n
	c.short = n < spanChunk
	s.coming += n
	if s.err == nil && s.log == nil {
		s.err = s.open()
	}
	if s.err == nil {
		_, s.err = s.log.WriteAt(data, s.end)
	}
	s.end += n
	return nil
}

func (s *spool) open() error {
	f, err := os.CreateTemp(s.dir, "files-")
	if err != nil {
		return err
	}
	s.log = f
	os.Remove(f.Name()) // on systems that cannot remove open files, close removes it
	return nil
}

// put replaces the contents by p in the range of p, and sets the size of the file. It returns how
// many pieces it visited.
func (d *spoolData) put(p piece, size int64) (steps int) {
	d.size = size
	if p.n > 0 {
		// Pieces that overlap p are removed, except for their parts outside of p.
		from, _ := slices.BinarySearchFunc(d.pieces, p.off, func(q piece, off int64) int { return cmp.Compare(q.off+q.n, off+1) })
		to := from
		var with []piece
		for ; to < len(d.pieces) && d.pieces[to].off < p.off+p.n; to++ {
			q := d.pieces[to]
			if before := p.off - q.off; before > 0 {
				with = append(with, piece{q.off, q.at, before})
			}
		}
		with = append(with, p)
		if to > from {
			if q := d.pieces[to-1]; q.off+q.n > p.off+p.n {
				cut := p.off + p.n - q.off
				with = append(with, piece{q.off + cut, q.at + cut, q.n - cut})
			}
		}
		steps += to - from + len(with)
		d.pieces = slices.Replace(d.pieces, from, to, with...)
	}
	for n := len(d.pieces); n > 0; n-- {
		steps++
		if q := &d.pieces[n-1]; q.off < size {
			q.n = min(q.n, size-q.off)
			break
		}
		d.pieces = d.pieces[:n-1]
	}
	return steps
}

// abort discards the changes since the last commit.
func (s *spool) abort() {
	s.changes, s.coming = nil, 0
	clear(s.paths)
	clear(s.ids)
}

// commit makes the changes since the last one the state to restore. An error is a fault of the
// host; then nothing has changed.
func (s *spool) commit() error {
	defer s.abort()
	bytes, err := s.check()
	if err != nil {
		return err
	}
	s.bytes = bytes
	var left []spoolChange // files that were at the paths before
	for _, c := range s.changes {
		s.steps++
		if e := s.tree[c.path]; e.kind == kindFile {
			left = append(left, spoolChange{path: c.path, entry: e})
		}
		if c.entry.kind == kindGone {
			delete(s.tree, c.path)
			continue
		}
		s.tree[c.path] = c.entry
		if c.entry.kind != kindFile {
			continue
		}
		d := s.data[c.entry.id]
		if d == nil {
			d = &spoolData{}
			s.data[c.entry.id] = d
		}
		d.path = c.path
		s.pieces -= len(d.pieces)
		s.steps += d.put(c.span, c.entry.size)
		s.pieces += len(d.pieces)
	}
	for _, c := range left {
		// If the file still owns its path, it is gone, unless the new entry is the same file.
		if d := s.data[c.entry.id]; d.path == c.path && (s.tree[c.path].kind != kindFile || s.tree[c.path].id != c.entry.id) {
			s.pieces -= len(d.pieces)
			delete(s.data, c.entry.id)
		}
	}
	if s.err == nil && (s.end > 2*s.bytes+maxGarbage || s.pieces > 2*len(s.tree)+maxSpare) {
		s.err = s.compact()
	}
	return nil
}

// check returns the total size of the files including the changes, or an error in the changes.
func (s *spool) check() (bytes int64, err error) {
	if err := s.whole(); err != nil {
		return 0, err
	}
	bytes, nodes := s.bytes, len(s.tree)
	for _, c := range s.changes {
		if e, ok := s.tree[c.path]; ok {
			nodes--
			bytes -= e.bytes()
		}
		if c.entry.kind != kindGone {
			nodes++
			bytes += c.entry.bytes()
		}
		if d := s.data[c.entry.id]; c.entry.kind == kindFile && d != nil {
			if _, changed := s.paths[d.path]; !changed {
				return 0, fmt.Errorf("%w: file %d at two places", errFrame, c.entry.id)
			}
		}
	}
	if bytes > s.maxBytes || nodes > s.maxNodes {
		return 0, fmt.Errorf("%w: more files than the quota allows", errFrame)
	}
	return bytes, nil
}

// compact writes a new log with only the used data, each file in one piece.
func (s *spool) compact() error {
	old, end := s.log, s.end
	if err := s.open(); err != nil {
		return err
	}
	defer closeTemp(old)
	s.end, s.steps, s.pieces = 0, s.steps+s.pieces, 0
	for _, id := range slices.Sorted(maps.Keys(s.data)) {
		d, at := s.data[id], s.end
		for _, p := range d.pieces {
			if p.at+p.n > end {
				return errors.New("the log of files is damaged")
			}
			w := io.NewOffsetWriter(s.log, s.end)
			if _, err := io.Copy(w, io.NewSectionReader(old, p.at, p.n)); err != nil {
				return err
			}
			s.end += p.n
		}
		d.pieces = nil
		if d.size > 0 {
			d.pieces = []piece{{0, at, d.size}}
			s.pieces++
		}
	}
	return nil
}

// close releases the log.
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

// The sizes of batches.
const (
	maxBatch = 64 << 10
	maxParts = 1000
)

// restore restores the files in a new process.
func (s *spool) restore(ctx context.Context, h *host) error {
	if s.err != nil {
		return s.err
	}
	if len(s.tree) == 0 {
		return nil
	}
	paths := slices.Sorted(maps.Keys(s.tree)) // a directory comes before its contents
	var entries []any
	for i, size := 0, 0; i < len(paths); i++ {
		p, e := paths[i], s.tree[paths[i]]
		entries = append(entries, wire.Map{"path": p, "kind": e.kind, "id": e.id, "mode": e.mode, "mtime": e.mtime, "size": e.size, "target": e.target})
		if size += len(p) + len(e.target) + 100; size < maxBatch && i < len(paths)-1 {
			continue
		}
		if _, err := h.call(ctx, wire.Map{"op": "put", "entries": entries}, nil); err != nil {
			return err
		}
		entries, size = nil, 0
	}
	var parts []any
	var buf []byte
	flush := func() error {
		if len(parts) == 0 {
			return nil
		}
		_, err := h.call(ctx, wire.Map{"op": "fill", "parts": parts, "data": buf}, nil)
		parts, buf = nil, buf[:0]
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
				parts = append(parts, wire.Map{"id": e.id, "offset": q.off + done, "bytes": n})
				done += n
				if len(buf) >= chunkLen || len(parts) >= maxParts {
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
	_, err := h.call(ctx, wire.Map{"op": "restored"}, nil)
	return err
}
