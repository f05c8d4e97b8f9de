package pyodide

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func spoolFrame(e spoolEntry, whole bool, path string) []byte {
	b := []byte{e.kind, 0}
	if whole {
		b[1] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, e.id)
	b = binary.LittleEndian.AppendUint32(b, e.mode)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(e.mtime))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(e.size)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(path)))
	return append(append(b, path...), e.target...)
}

func dataFrame(id uint32, off int64, data string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, id)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(off)))
	return append(b, data...)
}

// checkSpool fails the test if the spool is inconsistent.
func checkSpool(t *testing.T, s *spool) {
	t.Helper()
	for id, d := range s.data {
		end := int64(0)
		for _, p := range d.pieces {
			if p.n <= 0 || p.off < end || p.at < 0 || p.at+p.n > s.end {
				t.Fatalf("file %d: pieces %v, log of %d bytes", id, d.pieces, s.end)
			}
			end = p.off + p.n
		}
		if e := s.tree[d.path]; end != d.size || e.kind != kindFile || e.id != id || e.size != d.size {
			t.Fatalf("file %d: %+v at %+v", id, d, e)
		}
	}
	for path, e := range s.tree {
		if e.kind == kindFile && (e.size > s.maxBytes || s.data[e.id] == nil) {
			t.Fatalf("%s: %d bytes", path, e.size)
		}
	}
}

// contents reads a file from the spool.
func (s *spool) contents(t *testing.T, path string) []byte {
	t.Helper()
	e := s.tree[path]
	b := make([]byte, e.size)
	for _, p := range s.data[e.id].pieces {
		if _, err := s.log.ReadAt(b[p.off:p.off+p.n], p.at); err != nil && err != io.EOF {
			t.Fatal(err)
		}
	}
	return b
}

func TestSpoolRefuses(t *testing.T) {
	file := func(path string) []byte { return spoolFrame(spoolEntry{kind: kindFile, id: 1, size: 3}, true, path) }
	for name, f := range map[string]frame{
		"empty":           {typ: fromFile},
		"relative":        {typ: fromFile, payload: file("workspace/a")},
		"root":            {typ: fromFile, payload: file("/")},
		"not-clean":       {typ: fromFile, payload: file("/a/../b")},
		"not-utf8":        {typ: fromFile, payload: file("/a\xff")},
		"long":            {typ: fromFile, payload: file("/" + strings.Repeat("a", maxPath))},
		"kind":            {typ: fromFile, payload: spoolFrame(spoolEntry{kind: 9}, true, "/a")},
		"size":            {typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindFile, size: 1 << 47}, true, "/a")},
		"time":            {typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindFile, mtime: math.NaN()}, true, "/a")},
		"data-first":      {typ: fromData, payload: dataFrame(5, 0, "x")},
		"data-far":        {typ: fromData, payload: dataFrame(1, 1<<40, "x")},
		"data-not-whole":  {typ: fromData, payload: binary.LittleEndian.AppendUint64(make([]byte, 4), math.Float64bits(0.5))},
		"data-negative":   {typ: fromData, payload: binary.LittleEndian.AppendUint64(make([]byte, 4), math.Float64bits(-1))},
		"data-no-number":  {typ: fromData, payload: binary.LittleEndian.AppendUint64(make([]byte, 4), math.Float64bits(math.NaN()))},
		"data-half":       {typ: fromData, payload: []byte{1}},
		"data-of-a-gap":   {typ: fromData, payload: dataFrame(1, 1, "x")},
		"data-too-long":   {typ: fromData, payload: dataFrame(1, 0, "four")},
		"data-empty":      {typ: fromData, payload: dataFrame(1, 0, "")},
		"without-data":    {typ: fromFile, payload: file("/workspace/b")},
		"target-not-utf8": {typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindLink, target: "\xff"}, true, "/a")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpool(t.TempDir(), 1<<20, 10)
			defer s.close()
			if err := s.frame(frame{typ: fromFile, payload: file("/workspace/a")}); err != nil {
				t.Fatal(err)
			}
			if err := s.frame(f); !errors.Is(err, errFrame) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Exceeding the quota is a fault of the host, in whatever way.
func TestSpoolBounds(t *testing.T) {
	t.Parallel()
	t.Run("bytes", func(t *testing.T) {
		s := newSpool(t.TempDir(), 1<<20, 10)
		defer s.close()
		send(t, s, "/f0", 0, true, 8<<20, 0, make([]byte, 8<<20))
		send(t, s, "/f1", 1, true, 8<<20, 0, make([]byte, 8<<20))
		err := s.frame(frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindFile, id: 2, size: 8 << 20}, true, "/f2")})
		for i := int64(0); err == nil && i < 8<<20; i += spanChunk {
			err = s.frame(frame{typ: fromData, payload: dataFrame(2, i, string(make([]byte, spanChunk)))})
		}
		if !errors.Is(err, errFrame) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("bytes-bit-by-bit", func(t *testing.T) {
		s := newSpool(t.TempDir(), 1<<20, 10)
		defer s.close()
		var err error
		for i := uint32(0); err == nil && i < 10; i++ {
			send(t, s, fmt.Sprintf("/f%d", i), i, true, 4<<20, 0, make([]byte, 4<<20))
			err = s.commit()
		}
		if !errors.Is(err, errFrame) || len(s.tree) != 4 || s.bytes != 16<<20 {
			t.Errorf("got %v, %d files", err, len(s.tree))
		}
		checkSpool(t, s)
	})
	t.Run("entries", func(t *testing.T) {
		s := newSpool(t.TempDir(), 1<<20, 10)
		defer s.close()
		var err error
		for i := 0; err == nil && i < 100_000; i++ {
			err = s.frame(frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindDir, id: uint32(i)}, true, fmt.Sprintf("/d%d", i))})
		}
		if !errors.Is(err, errFrame) {
			t.Errorf("got %v", err)
		}
	})
}

// Random changes have the same result as in ordinary memory, with and without compaction in
// between.
func TestSpoolKeepsWhatItGets(t *testing.T) {
	t.Parallel()
	source := rand.NewChaCha8([32]byte{1, 2})
	rnd := rand.New(source)
	s := newSpool(t.TempDir(), 64<<20, 100)
	defer s.close()
	type file struct {
		id   uint32
		data []byte
	}
	want := map[string]*file{}
	next := uint32(1)
	for round := range 200 {
		names := []string{"/workspace/a", "/workspace/b", "/tmp/c"}
		name := names[rnd.IntN(len(names))]
		f := want[name]
		switch {
		case f == nil || rnd.IntN(8) == 0: // new contents
			f = &file{id: next, data: make([]byte, rnd.IntN(2<<20))}
			next++
			source.Read(f.data)
			want[name] = f
			send(t, s, name, f.id, true, int64(len(f.data)), 0, f.data)
		case rnd.IntN(8) == 0: // removed
			delete(want, name)
			if err := s.frame(frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindGone}, false, name)}); err != nil {
				t.Fatal(err)
			}
		case rnd.IntN(4) == 0: // shorter
			f.data = f.data[:rnd.IntN(len(f.data)+1)]
			send(t, s, name, f.id, false, int64(len(f.data)), 0, nil)
		default: // changed in the middle, or longer
			off := rnd.IntN(len(f.data) + 1)
			part := bytes.Repeat([]byte{byte(round)}, 1+rnd.IntN(1<<20))
			f.data = slices.Concat(f.data[:off], part, f.data[min(off+len(part), len(f.data)):])
			send(t, s, name, f.id, false, int64(len(f.data)), int64(off), part)
		}
		if err := s.commit(); err != nil || s.err != nil {
			t.Fatal(err, s.err)
		}
		if round%7 == 0 { // changes that a process sent before it died
			for name, f := range want {
				send(t, s, name, f.id, false, int64(len(f.data)), 0, []byte("never committed")[:min(15, len(f.data))])
			}
			s.abort()
		}
		checkSpool(t, s)
		if len(s.tree) != len(want) {
			t.Fatalf("round %d: got %d files, want %d", round, len(s.tree), len(want))
		}
	}
	for name, f := range want {
		if got := s.contents(t, name); !bytes.Equal(got, f.data) {
			t.Errorf("%s: the contents differ", name)
		}
	}
	if s.end > 2*64<<20+maxGarbage {
		t.Errorf("the log has %d bytes", s.end)
	}
}

// What a correct host never sends is refused, also after a commit, and the committed state stays
// unchanged.
func TestSpoolOrder(t *testing.T) {
	file := func(path string, id uint32, whole bool, size int64) frame {
		return frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindFile, id: id, size: size}, whole, path)}
	}
	gone := func(path string) frame {
		return frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindGone}, false, path)}
	}
	data := func(id uint32, off int64, n int) frame {
		return frame{typ: fromData, payload: dataFrame(id, off, strings.Repeat("x", n))}
	}
	for name, frames := range map[string][]frame{
		"gone-unknown":        {gone("/nothing")},
		"gone-twice":          {gone("/a"), gone("/a")},
		"changed-and-gone":    {file("/a", 1, false, 3), gone("/a")},
		"same-path-twice":     {file("/a", 1, false, 3), file("/a", 3, true, 0)},
		"same-file-twice":     {gone("/a"), file("/c", 1, false, 3), file("/d", 1, false, 3)},
		"new-is-known":        {file("/c", 1, true, 0)},
		"known-is-new":        {file("/c", 9, false, 0)},
		"at-two-places":       {file("/c", 1, false, 3)},
		"backwards":           {file("/a", 1, false, 3), data(1, 1, 1), data(1, 0, 1)},
		"again":               {file("/a", 1, false, 3), data(1, 0, 1), data(1, 0, 1)},
		"byte-by-byte":        {file("/a", 1, false, 3), data(1, 0, 1), data(1, 1, 1)},
		"another-file":        {file("/a", 1, false, 3), data(2, 0, 1)},
		"file-before":         {file("/a", 1, false, 3), file("/b", 2, false, 3), data(1, 0, 1)},
		"longer-without-data": {file("/a", 1, false, 4)},
		"longer-not-all":      {file("/a", 1, false, 5), data(1, 3, 1)},
		"gap":                 {file("/a", 1, false, 5), data(1, 4, 1)},
		"long-frame":          {file("/c", 3, true, spanChunk+1), data(3, 0, spanChunk+1)},
		"directory":           {{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindDir, id: 3}, true, "/d")}, data(3, 0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpool(t.TempDir(), 1<<20, 10)
			defer s.close()
			send(t, s, "/a", 1, true, 3, 0, []byte("one"))
			send(t, s, "/b", 2, true, 3, 0, []byte("two"))
			if err := s.commit(); err != nil {
				t.Fatal(err)
			}
			var err error
			for _, f := range frames {
				if err == nil {
					err = s.frame(f)
				}
			}
			if err == nil {
				err = s.commit()
			}
			if !errors.Is(err, errFrame) {
				t.Errorf("got %v", err)
			}
			s.abort()
			if got := string(s.contents(t, "/a")) + string(s.contents(t, "/b")); got != "onetwo" || len(s.tree) != 2 {
				t.Errorf("got %q, %d files", got, len(s.tree))
			}
			checkSpool(t, s)
		})
	}
}

// Files may swap their names.
func TestSpoolMoves(t *testing.T) {
	s := newSpool(t.TempDir(), 1<<20, 10)
	defer s.close()
	send(t, s, "/a", 1, true, 3, 0, []byte("one"))
	send(t, s, "/b", 2, true, 3, 0, []byte("two"))
	send(t, s, "/c", 3, true, 0, 0, nil)
	err := s.commit()
	send(t, s, "/a", 2, false, 3, 0, nil)
	send(t, s, "/b", 1, false, 3, 0, nil)
	send(t, s, "/c", 4, true, 1, 0, []byte("x"))
	if err == nil {
		err = s.commit()
	}
	if got := string(s.contents(t, "/a")) + string(s.contents(t, "/b")) + string(s.contents(t, "/c")); err != nil || got != "twoonex" || len(s.data) != 3 {
		t.Errorf("got %q, %v, %d files", got, err, len(s.data))
	}
	checkSpool(t, s)
}

// send sends a change of a file to the spool, as the host does.
func send(t *testing.T, s *spool, name string, id uint32, whole bool, size, off int64, data []byte) {
	t.Helper()
	err := s.frame(frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindFile, id: id, size: size}, whole, name)})
	for part := range slices.Chunk(data, 32<<10) {
		if err == nil {
			err = s.frame(frame{typ: fromData, payload: dataFrame(id, off, string(part))})
		}
		off += int64(len(part))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The changes of a run that did not end are discarded.
func TestSpoolAbort(t *testing.T) {
	s := newSpool(t.TempDir(), 1<<20, 10)
	defer s.close()
	send(t, s, "/a", 1, true, 3, 0, []byte("old"))
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	send(t, s, "/a", 1, false, 3, 1, []byte("NEW")[1:])
	send(t, s, "/b", 2, true, 1, 0, []byte("x"))
	s.abort()
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	if got := string(s.contents(t, "/a")); got != "old" || len(s.tree) != 1 {
		t.Errorf("got %q, %d files", got, len(s.tree))
	}
}
