package e2b

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/executor"
)

const (
	metadataHeader  = "X-Metadata-"
	maxFileMetadata = 4096 // bytes of the names and values of one file, as at E2B
	maxFileKeys     = 128  // names of one file
	maxMetadata     = 1000 // files of a sandbox that have any
)

// metadata holds the metadata that clients give to files. E2B keeps it in extended attributes,
// which backends do not have. Here it belongs to the name of a file: it moves when a client renames
// the file, and not when code does.
type metadata struct {
	name func(abs string) string // the one that stands for all names of a file

	mu    sync.Mutex
	files map[string]map[string]string // nobody changes what is in it
}

func newMetadata(i executor.SessionInfo) *metadata {
	name := func(abs string) string {
		for _, alias := range i.Aliases {
			if rest, ok := within(abs, alias); ok {
				return executor.Workdir + rest
			}
		}
		return abs
	}
	return &metadata{name: name, files: map[string]map[string]string{}}
}

// within returns what abs has beyond a directory, if it is that or below it.
func within(abs, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(abs, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// metadataOf reads what the headers of an upload say of its files.
func metadataOf(h http.Header) (map[string]string, error) {
	said := map[string]string{}
	size := 0
	for header, values := range h {
		name, ok := strings.CutPrefix(header, metadataHeader)
		if !ok {
			continue
		}
		if name == "" || len(values) != 1 || strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, refuse(http.StatusBadRequest, "metadata: the header %s: want a name after the last dash, and one value of printable ASCII", header)
		}
		said[strings.ToLower(name)] = values[0]
		size += len(name) + len(values[0])
	}
	if size > maxFileMetadata || len(said) > maxFileKeys {
		return nil, refuse(http.StatusBadRequest, "metadata: %d names and %d bytes; a file has at most %d and %d", len(said), size, maxFileKeys, maxFileMetadata)
	}
	return said, nil
}

// of returns what was said of a file. It may be nil, and is not changed.
func (m *metadata) of(abs string) map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[m.name(abs)]
}

// set replaces what was said of a file.
func (m *metadata) set(abs string, said map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, m.name(abs))
	switch {
	case len(said) == 0:
		return nil
	case len(m.files) >= maxMetadata:
		return refuse(http.StatusInsufficientStorage, "path %q: written, but a sandbox has at most %d files with metadata; remove one first", abs, maxMetadata)
	}
	m.files[m.name(abs)] = said
	return nil
}

// move follows a file or directory that was renamed.
func (m *metadata) move(from, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to = m.name(from), m.name(to)
	if from == to {
		return
	}
	moved := map[string]map[string]string{}
	for name, said := range m.files {
		if rest, ok := within(name, from); ok {
			moved[to+rest] = said
		}
	}
	m.forget(from)
	m.forget(to)
	maps.Copy(m.files, moved)
}

// remove follows a file or directory that was removed.
func (m *metadata) remove(abs string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(m.name(abs))
}

// forget removes a name and those below it. The caller holds m.mu.
func (m *metadata) forget(dir string) {
	maps.DeleteFunc(m.files, func(name string, _ map[string]string) bool {
		_, ok := within(name, dir)
		return ok
	})
}
