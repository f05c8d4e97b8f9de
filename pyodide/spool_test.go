package pyodide

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/wire"
)

func spoolFrame(e spoolEntry, whole bool, from int64, path string) wire.Frame {
	return wire.Frame{Type: wire.Data, Channel: wire.Entries, Stream: 1, Payload: value(wire.Map{
		"path": path, "kind": e.kind, "whole": whole, "id": e.id, "mode": e.mode, "mtime": e.mtime, "size": e.size, "target": e.target, "from": from,
	})}
}

func dataFrame(data string) wire.Frame {
	return wire.Frame{Type: wire.Data, Stream: 1, Payload: []byte(data)}
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
	file := func(path string) wire.Frame {
		return spoolFrame(spoolEntry{kind: kindFile, id: 1, size: 3}, true, 0, path)
	}
	entry := func(e spoolEntry) wire.Frame { return spoolFrame(e, true, 0, "/a") }
	for name, frames := range map[string][]wire.Frame{
		"empty":           {{Type: wire.Data, Channel: wire.Entries, Stream: 1}},
		"no-map":          {{Type: wire.Data, Channel: wire.Entries, Stream: 1, Payload: value(1)}},
		"two-in-a-frame":  {{Type: wire.Data, Channel: wire.Entries, Stream: 1, Payload: append(entry(spoolEntry{kind: kindDir}).Payload, value(wire.Map{})...)}},
		"half":            {{Type: wire.Data, Channel: wire.Entries, Stream: 1, Payload: file("/b").Payload[:9]}},
		"output":          {{Type: wire.Data, Channel: wire.Stdout, Stream: 1, Payload: []byte("x")}},
		"relative":        {file("workspace/a")},
		"root":            {file("/")},
		"not-clean":       {file("/a/../b")},
		"not-utf8":        {file("/a\xff")},
		"long":            {file("/" + strings.Repeat("a", maxPath))},
		"kind":            {entry(spoolEntry{kind: 9})},
		"kind-zero":       {entry(spoolEntry{})},
		"size":            {entry(spoolEntry{kind: kindFile, size: 1 << 47})},
		"size-negative":   {entry(spoolEntry{kind: kindFile, size: -1})},
		"data-far":        {spoolFrame(spoolEntry{kind: kindFile, id: 5, size: 3}, true, 1<<40, "/b"), dataFrame("x")},
		"data-overflow":   {spoolFrame(spoolEntry{kind: kindFile, id: 5, size: 3}, true, math.MaxInt64, "/b"), dataFrame("x")},
		"data-negative":   {spoolFrame(spoolEntry{kind: kindFile, id: 5, size: 3}, true, -1, "/b")},
		"data-of-a-gap":   {spoolFrame(spoolEntry{kind: kindFile, id: 5, size: 3}, true, 1, "/b"), dataFrame("x")},
		"data-too-long":   {dataFrame("four")},
		"data-empty":      {dataFrame("")},
		"without-data":    {file("/workspace/b")},
		"target-not-utf8": {entry(spoolEntry{kind: kindLink, target: "\xff"})},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpool(t.TempDir(), 1<<20, 10)
			defer s.close()
			var err error
			if strings.HasPrefix(name, "data-t") || name == "data-empty" || name == "without-data" {
				err = s.frame(file("/workspace/a"))
			}
			for i, f := range frames {
				if err != nil {
					t.Fatalf("frame %d: got %v", i, err)
				}
				err = s.frame(f)
			}
			if !errors.Is(err, errFrame) {
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
		err := s.frame(spoolFrame(spoolEntry{kind: kindFile, id: 2, size: 8 << 20}, true, 0, "/f2"))
		for i := int64(0); err == nil && i < 8<<20; i += spanChunk {
			err = s.frame(dataFrame(string(make([]byte, spanChunk))))
		}
		if !errors.Is(err, errFrame) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("bytes-bit-by-bit", func(t *testing.T) {
		s := newSpool(t.TempDir(), 1<<20, 10)
		defer s.close()
		var err error
		for i := int64(0); err == nil && i < 10; i++ {
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
			err = s.frame(spoolFrame(spoolEntry{kind: kindDir, id: int64(i)}, true, 0, fmt.Sprintf("/d%d", i)))
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
		id   int64
		data []byte
	}
	want := map[string]*file{}
	next := int64(1)
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
			if err := s.frame(spoolFrame(spoolEntry{kind: kindGone}, false, 0, name)); err != nil {
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
	file := func(path string, id int64, whole bool, size, from int64) wire.Frame {
		return spoolFrame(spoolEntry{kind: kindFile, id: id, size: size}, whole, from, path)
	}
	gone := func(path string) wire.Frame { return spoolFrame(spoolEntry{kind: kindGone}, false, 0, path) }
	data := func(n int) wire.Frame { return dataFrame(strings.Repeat("x", n)) }
	for name, frames := range map[string][]wire.Frame{
		"gone-unknown":        {gone("/nothing")},
		"gone-twice":          {gone("/a"), gone("/a")},
		"changed-and-gone":    {file("/a", 1, false, 3, 0), gone("/a")},
		"same-path-twice":     {file("/a", 1, false, 3, 0), file("/a", 3, true, 0, 0)},
		"same-file-twice":     {gone("/a"), file("/c", 1, false, 3, 0), file("/d", 1, false, 3, 0)},
		"new-is-known":        {file("/c", 1, true, 0, 0)},
		"known-is-new":        {file("/c", 9, false, 0, 0)},
		"at-two-places":       {file("/c", 1, false, 3, 0)},
		"backwards":           {file("/a", 1, false, 3, 1), data(1), file("/a", 1, false, 3, 0)},
		"byte-by-byte":        {file("/a", 1, false, 3, 0), data(1), data(1)},
		"data-first":          {data(1)},
		"data-of-none":        {gone("/a"), data(1)},
		"longer-without-data": {file("/a", 1, false, 4, 0)},
		"longer-not-all":      {file("/a", 1, false, 5, 3), data(1)},
		"longer-than-said":    {file("/a", 1, false, 3, 2), data(2)},
		"gap":                 {file("/a", 1, false, 5, 4), data(1)},
		"long-frame":          {file("/c", 3, true, spanChunk+1, 0), data(spanChunk + 1)},
		"directory":           {spoolFrame(spoolEntry{kind: kindDir, id: 3}, true, 0, "/d"), data(1)},
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
func send(t *testing.T, s *spool, name string, id int64, whole bool, size, off int64, data []byte) {
	t.Helper()
	err := s.frame(spoolFrame(spoolEntry{kind: kindFile, id: id, size: size}, whole, off, name))
	for part := range slices.Chunk(data, 32<<10) {
		if err == nil {
			err = s.frame(dataFrame(string(part)))
		}
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
