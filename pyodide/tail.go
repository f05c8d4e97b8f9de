package pyodide

import (
	"strings"
	"sync"
)

// stderrKeep is how many bytes of a host's standard error are kept, from the end.
const stderrKeep = 8 << 10

// tail keeps the end of the data that is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-stderrKeep):]...)
	if over := len(t.buf) - stderrKeep; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// last returns the last non-empty line, cut to a length that fits into an error.
func (t *tail) last() string {
	s := strings.TrimSpace(t.String())
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), 500)]
}
