package wire

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// Bounds of a value that code shows.
const (
	MaxOutput  = 64 << 20 // bytes in all its representations
	maxTypes   = 32
	maxTypeLen = 100
)

// RunRequest returns the request for a run, without what is to be run.
func RunRequest(req *executor.Request) Map {
	m := Map{
		"op": "run", "wall": int64(req.Limits.WallTime), "dir": req.Dir, "env": Texts(req.Env),
		"stdin": req.Stdin != nil, "artifacts": req.Artifacts != nil,
	}
	if req.Linger != nil {
		m["linger"] = int64(*req.Linger)
	}
	return m
}

// Texts returns the value of texts by name.
func Texts(texts map[string]string) Map {
	m := Map{}
	for k, v := range texts {
		m[k] = v
	}
	return m
}

// List returns the value of a list of texts.
func List(texts []string) []any {
	list := make([]any, len(texts))
	for i, v := range texts {
		list[i] = v
	}
	return list
}

// ParseOutput returns what the payload of an Output frame shows. It comes from an interpreter,
// where code can say what it likes.
func ParseOutput(payload []byte) (*executor.Output, error) {
	m, err := ParseMap(payload)
	if err != nil {
		return nil, err
	}
	data := m.Map("data")
	if data == nil || len(data) > maxTypes {
		return nil, fmt.Errorf("%w: %d representations", ErrValue, len(data))
	}
	out := &executor.Output{Main: m.Bool("main"), Data: make(executor.MIMEBundle, len(data))}
	for mime := range data {
		b := data.Bytes(mime)
		if b == nil || !validMIME(mime) {
			return nil, fmt.Errorf("%w: representation %.40q", ErrValue, mime)
		}
		out.Data[mime] = b
	}
	return out, nil
}

// validMIME reports whether s is a lower-case media type without parameters.
func validMIME(s string) bool {
	slashes := 0
	for _, c := range []byte(s) {
		switch {
		case c == '/':
			slashes++
		case c <= ' ' || c > '~' || c >= 'A' && c <= 'Z' || c == ';' || c == ',' || c == '"' || c == '\\':
			return false
		}
	}
	return slashes == 1 && len(s) >= 3 && len(s) <= maxTypeLen && s[0] != '/' && s[len(s)-1] != '/'
}

// Exit returns what the value in the last frame of a run says about its code.
func (m Map) Exit() driver.Exit {
	exit := driver.Exit{Code: int(m.Int("exit")), StateLost: m.Bool("lost")}
	if left := m.Text("left"); left != "" {
		exit.LeftRunning = strings.Split(left, "\n")
	}
	if e := m.Map("exception"); e != nil {
		exit.Exception = &executor.Exception{
			Type: e.valid("type"), Message: e.valid("message"), Traceback: e.valid("traceback"), Line: int(max(0, e.Int("line"))),
		}
	}
	return exit
}

// ParseChanged decodes the files that a run has changed, which must not be more than most.
func ParseChanged(entries []byte, most int) ([]driver.Changed, error) {
	var changed []driver.Changed
	for len(entries) > 0 {
		v, rest, err := ParseValue(entries)
		if err != nil {
			return nil, err
		}
		m, _ := v.(Map)
		if len(changed) == most || m.Text("name") == "" || m.Int("size") < 0 {
			return nil, fmt.Errorf("%w: more than %d changed files, or one without a name or size", ErrValue, most)
		}
		changed = append(changed, driver.Changed{Name: m.Text("name"), Size: m.Int("size"), ModTime: time.Unix(0, m.Int("mtime"))})
		entries = rest
	}
	return changed, nil
}

// FileInfo returns what a sandbox says of a file.
func (m Map) FileInfo() executor.FileInfo {
	return executor.FileInfo{
		Name: m.valid("name"), Size: max(0, m.Int("size")), Mode: fileMode(m.Int("mode")), ModTime: time.Unix(0, m.Int("mtime")), Target: m.valid("target"),
	}
}

// fileMode translates st_mode of Linux.
func fileMode(mode int64) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & 0o170000 {
	case 0o040000:
		m |= fs.ModeDir
	case 0o120000:
		m |= fs.ModeSymlink
	case 0o010000:
		m |= fs.ModeNamedPipe
	case 0o140000:
		m |= fs.ModeSocket
	case 0o020000:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case 0o060000:
		m |= fs.ModeDevice
	}
	for bit, flag := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}
