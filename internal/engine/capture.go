package engine

import (
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// unfinished returns how many bytes at the end of b begin a character that may go on.
func unfinished(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if p := b[len(b)-i:]; utf8.RuneStart(p[0]) {
			if utf8.FullRune(p) {
				return 0
			}
			return i
		}
	}
	return 0
}

// stream is stdout or stderr of a run.
type stream struct {
	carry [utf8.UTFMax - 1]byte // of a character that has begun
	n     int                   // how many bytes of it
	keeper
}

// join returns what was carried and data, up to the last whole character, and carries the rest.
// Data is not kept; if share is set the result may be part of it.
func (s *stream) join(data []byte, share bool) []byte {
	whole := data
	if s.n > 0 || !share {
		whole = make([]byte, s.n+len(data))
		copy(whole[copy(whole, s.carry[:s.n]):], data)
	}
	s.n = unfinished(whole)
	whole, rest := whole[:len(whole)-s.n], whole[len(whole)-s.n:]
	copy(s.carry[:], rest)
	return whole
}

// keeper keeps the first and the last half of max bytes.
type keeper struct {
	max        int
	head, tail []byte
	cut        int64
}

func (k *keeper) write(p []byte) {
	n := min(len(p), k.max-k.max/2-len(k.head))
	k.head = append(k.head, p[:n]...)
	k.tail = append(k.tail, p[n:]...)
	// The tail may grow to twice its size before it is cut, so that each byte is moved once.
	if over := len(k.tail) - k.max/2; over > k.max/2 {
		k.cut += int64(over)
		k.tail = append(k.tail[:0], k.tail[over:]...)
	}
}

// bytes returns what was kept, without parts of characters at the gap.
func (k *keeper) bytes(kind executor.EventKind) (executor.Bytes, *executor.Gap) {
	if over := len(k.tail) - k.max/2; over > 0 {
		k.cut += int64(over)
		k.tail = k.tail[over:]
	}
	if k.cut == 0 {
		return append(k.head, k.tail...), nil
	}
	n := unfinished(k.head)
	k.head, k.cut = k.head[:len(k.head)-n], k.cut+int64(n)
	for n = 0; n < min(utf8.UTFMax-1, len(k.tail)) && !utf8.RuneStart(k.tail[n]); {
		n++
	}
	k.tail, k.cut = k.tail[n:], k.cut+int64(n)
	return append(k.head, k.tail...), &executor.Gap{Stream: kind, At: len(k.head), Bytes: k.cut}
}
