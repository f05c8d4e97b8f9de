package dockertest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/execbroker/execbroker/internal/wire"
)

// talk is what is said over one connection of a cable. What it does not understand it passes on.
type talk struct {
	c     *Cable
	asked chan question // in order; each is answered once
	over  chan struct{} // closed when no more answers come
}

// question is a request.
type question struct {
	name     string
	head     bool // answered without a body
	upgrades bool // the connection then belongs to a process in a container
}

// message is the head of a request or an answer, as it came.
type message struct {
	raw    []byte
	first  string // line
	header textproto.MIMEHeader
}

// readHead reads a head. An error of the connection is as good as its end.
func readHead(r *bufio.Reader) (m message, err error) {
	for {
		line, err := r.ReadBytes('\n')
		m.raw = append(m.raw, line...)
		if err != nil {
			return m, err
		}
		if len(line) <= 2 {
			break
		}
	}
	t := textproto.NewReader(bufio.NewReader(bytes.NewReader(m.raw)))
	if m.first, err = t.ReadLine(); err == nil {
		m.header, err = t.ReadMIMEHeader()
	}
	return m, err
}

func (m message) chunked() bool {
	return strings.EqualFold(m.header.Get("Transfer-Encoding"), "chunked")
}

// body reads a body whose length is known.
func (m message) body(r io.Reader) ([]byte, error) {
	n, _ := strconv.Atoi(m.header.Get("Content-Length")) // none: 0
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// chunk reads a piece of a body that is told bit by bit, and reports whether it is the last.
func chunk(r *bufio.Reader) (raw []byte, last bool, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return line, true, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(line)), 16, 31)
	if err != nil {
		return line, true, err
	}
	raw = append(line, make([]byte, n+2)...)
	_, err = io.ReadFull(r, raw[len(line):])
	return raw, n == 0, err
}

// chunks passes on the rest of a body, without counting.
func chunks(to io.Writer, from *bufio.Reader) error {
	for {
		raw, last, err := chunk(from)
		if _, werr := to.Write(raw); err == nil {
			err = werr
		}
		if last || err != nil {
			return err
		}
	}
}

// up carries what the client says.
func (t *talk) up(to io.Writer, from io.Reader) {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		m, err := readHead(r)
		if err != nil {
			return
		}
		q := nameOf(m)
		var b []byte
		if !m.chunked() {
			if b, err = m.body(r); err != nil {
				return
			}
		}
		if q.name == "POST containers/create" {
			t.c.expect(b)
		}
		select {
		case t.asked <- q: // before the engine can answer it
		case <-t.over:
			return
		}
		if err = t.c.pass(to, q.name, append(m.raw, b...)); err == nil && m.chunked() {
			err = chunks(to, r)
		}
		if err != nil {
			return
		}
		if q.upgrades {
			if strings.HasSuffix(q.name, "/attach") {
				if t.program(to, r) != nil {
					return
				}
			}
			f := frames{c: t.c, name: "to runner: ", to: to, wrap: func(b []byte) []byte { return b }}
			f.copy(r)
			return
		}
	}
}

// program carries what a runner gets before the frames: the supervisor, and behind its length the
// compiled one.
func (t *talk) program(to io.Writer, from io.Reader) error {
	n := t.c.program()
	if n == 0 {
		return nil
	}
	b := make([]byte, n+4)
	if _, err := io.ReadFull(from, b); err != nil {
		return err
	}
	compiled := make([]byte, binary.BigEndian.Uint32(b[n:]))
	if _, err := io.ReadFull(from, compiled); err != nil {
		return err
	}
	return t.c.pass(to, "to runner: program", append(b, compiled...))
}

// down carries what the engine says.
func (t *talk) down(to io.Writer, from io.Reader) {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		m, err := readHead(r)
		if err != nil {
			return
		}
		q := <-t.asked
		_, code, _ := strings.Cut(m.first, " ")
		switch name := "answer of " + q.name; {
		case q.upgrades && (strings.HasPrefix(code, "101") || m.header.Get("Content-Type") == "application/vnd.docker.raw-stream"):
			if t.c.pass(to, name, m.raw) == nil {
				f := frames{c: t.c, name: "of runner: ", to: to, wrap: asStdout}
				f.copyStdout(r)
			}
			return
		case m.chunked() && !q.head:
			var first []byte
			var last bool
			if err = t.c.pass(to, name, m.raw); err == nil {
				if first, last, err = chunk(r); err == nil {
					err = t.c.pass(to, "body of "+q.name, first)
				}
			}
			if err == nil && !last {
				err = chunks(to, r)
			}
		default:
			var b []byte
			if !q.head {
				b, err = m.body(r)
			}
			if err == nil {
				err = t.c.pass(to, name, append(m.raw, b...))
			}
		}
		if err != nil {
			return
		}
	}
}

// nameOf names a request by what it is about: without the version of the API, IDs and names.
func nameOf(m message) question {
	method, path, _ := strings.Cut(m.first, " ")
	path, _, _ = strings.Cut(path, " ")
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if strings.HasPrefix(parts[0], "v1.") {
		parts = parts[1:]
	}
	switch last := len(parts) - 1; {
	case last >= 2:
		parts = []string{parts[0], "*", parts[last]}
	case last == 1 && !slices.Contains([]string{"create", "json"}, parts[1]):
		parts[1] = "*"
	}
	return question{name: method + " " + strings.Join(parts, "/"), head: method == http.MethodHead, upgrades: m.header.Get("Upgrade") != ""}
}

// expect finds in a request to make a container how long the program is that will be sent to it.
func (c *Cable) expect(create []byte) {
	var q struct{ Entrypoint []string }
	n := 0
	if json.Unmarshal(create, &q) == nil && len(q.Entrypoint) > 0 {
		n, _ = strconv.Atoi(q.Entrypoint[len(q.Entrypoint)-1]) // something else than a runner has none
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = n
}

func (c *Cable) program() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// frames passes on a stream of a runner, frame by frame.
type frames struct {
	c    *Cable
	name string
	to   io.Writer
	wrap func([]byte) []byte
	left []byte // of a frame that has not arrived in full
	raw  bool   // it is not one
}

// take passes on the frames that are complete now.
func (f *frames) take(b []byte) error {
	f.left = append(f.left, b...)
	for !f.raw {
		frame, rest, err := wire.Parse(f.left)
		if err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			f.raw = true
			break
		}
		whole := f.left[:len(f.left)-len(rest)]
		if err := f.c.pass(f.to, f.name+frame.Type.String(), f.wrap(whole)); err != nil {
			return err
		}
		f.left = rest
	}
	return f.flush()
}

func (f *frames) flush() error {
	if len(f.left) == 0 {
		return nil
	}
	_, err := f.to.Write(f.wrap(f.left))
	f.left = nil
	return err
}

// copy passes on what comes without anything around it.
func (f *frames) copy(from io.Reader) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if terr := f.take(b[:n]); terr != nil {
			return
		}
		if err != nil {
			f.flush()
			return
		}
	}
}

// copyStdout passes on what comes in the engine's own frames.
func (f *frames) copyStdout(from io.Reader) {
	var head [8]byte
	for {
		_, err := io.ReadFull(from, head[:])
		b := []byte(nil)
		if err == nil {
			b = make([]byte, binary.BigEndian.Uint32(head[4:]))
			_, err = io.ReadFull(from, b)
		}
		switch {
		case err != nil:
			f.flush()
			return
		case head[0] == 2: // stderr is diagnosis
			_, err = f.to.Write(append(head[:], b...))
		default:
			err = f.take(b)
		}
		if err != nil {
			return
		}
	}
}

// asStdout puts bytes into a frame of the engine.
func asStdout(b []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(b)))
	return append(head, b...)
}
