package pyodide

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
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

// checkSpool fails the test if the spool contradicts itself.
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
	}
	for path, e := range s.tree {
		if e.kind == kindFile && e.size > s.maxBytes {
			t.Fatalf("%s: %d bytes", path, e.size)
		}
	}
}

// contents reads a file out of the spool.
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

// More than the quota is a fault of the host, whichever way it comes.
func TestSpoolBounds(t *testing.T) {
	t.Parallel()
	t.Run("bytes", func(t *testing.T) {
		s := newSpool(t.TempDir(), 1<<20, 10)
		defer s.close()
		for i := range 3 {
			e := spoolEntry{kind: kindFile, id: uint32(i), size: 8 << 20}
			if err := s.frame(frame{typ: fromFile, payload: spoolFrame(e, true, fmt.Sprintf("/f%d", i))}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.commit(); !errors.Is(err, errFrame) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("data-over-and-over", func(t *testing.T) {
		s := newSpool(t.TempDir(), 1<<20, 10)
		defer s.close()
		err := s.frame(frame{typ: fromFile, payload: spoolFrame(spoolEntry{kind: kindFile, id: 1, size: 1}, true, "/f")})
		block := string(make([]byte, 1<<20))
		for i := 0; err == nil && i < 1000; i++ {
			err = s.frame(frame{typ: fromData, payload: dataFrame(1, 0, block)})
		}
		if !errors.Is(err, errFrame) {
			t.Errorf("got %v", err)
		}
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

// Random changes leave what the same changes leave in ordinary memory, whether or not what is dead is thrown away in between.
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
		case rnd.IntN(8) == 0: // gone
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
		if round%7 == 0 && len(want) > 0 { // what a process sent before it died
			keep := s.changes
			s.changes = nil
			pending := maps.Clone(s.staged)
			clear(s.staged)
			for name, f := range want {
				send(t, s, name, f.id, false, int64(len(f.data)), 0, []byte("never committed")[:min(15, len(f.data))])
				break
			}
			s.abort()
			s.changes = keep
			maps.Copy(s.staged, pending)
		}
		if err := s.commit(); err != nil || s.err != nil {
			t.Fatal(err, s.err)
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

// send puts a change of a file into the spool as the host does.
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

// What came of a run that did not end leaves everything as it was.
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
