package packages

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/store"
)

// The programs of builders: a common beginning, and the rest for each language. Tests change them.
var (
	//go:embed program/builder.py
	BuilderProgram string
	//go:embed program/pip.py
	PipProgram string
	//go:embed program/npm.py
	NpmProgram string
)

// Timeout is how long a builder or a placer may take.
const Timeout = 10 * time.Minute

const (
	maxHead    = 16 << 20 // bytes of the description of what was fetched
	readBuffer = 64 << 10
)

// ContentFile contains the unchanged output of a builder: a line of JSON, then the contents of the
// files.
const ContentFile = "content"

// Fetch describes what to fetch. The result depends only on it and on the index at that time.
type Fetch struct {
	Base         string   `json:"base"`
	Facts        string   `json:"facts,omitempty"` // facts about a sandbox that was made from Base
	Python       string   `json:"python"`
	Requirements []string `json:"requirements"`
	Constraints  []string `json:"constraints"` // from the list, and from packages that the session has already
	IndexURL     string   `json:"index_url"`
	FindLinks    []string `json:"find_links"`
	Wheels       []wheel  `json:"wheels"`
	Offline      bool     `json:"offline"`
	Max          int64    `json:"max"`

	// Only for JavaScript.
	Language executor.Language `json:"language,omitempty"`
	Registry string            `json:"registry,omitempty"`
	Insecure bool              `json:"insecure,omitempty"`
	Have     [][2]string       `json:"have,omitempty"` // names and versions
}

// program returns the program that runs in the builder.
func (f *Fetch) program() string {
	if f.Language == executor.JavaScript {
		return factsProgram + BuilderProgram + NpmProgram
	}
	return factsProgram + BuilderProgram + PipProgram
}

// Command returns the command that starts a builder, as root in a place without data of users.
func (f *Fetch) Command(python string) []string { return []string{python, "-I", "-c", f.program()} }

// wheel is a file of the directory of wheels.
type wheel struct {
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"time"`
}

// fetched is the header of a builder's result.
type fetched struct {
	Kind     string       `json:"kind"` // kind of an error
	Error    string       `json:"error"`
	Packages [][2]string  `json:"packages"` // names and versions
	Notes    []string     `json:"notes"`    // for people
	Files    []placedFile `json:"files"`
}

// placedFile is a file of a package: [name, size, executable].
type placedFile struct {
	name string
	size int64
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *placedFile) UnmarshalJSON(raw []byte) error {
	v := []any{&f.name, &f.size, new(bool)}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if len(v) != 3 || !fs.ValidPath(f.name) || f.name == "." || f.size < 0 {
		return fmt.Errorf("%.80q is no file of a package", f.name)
	}
	return nil
}

// packageError says that the packages themselves cannot be installed.
type packageError struct{ text string }

// Error implements error.
func (e *packageError) Error() string { return e.text }

// key names the result of f in the cache.
func (f *Fetch) key() (string, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, len(f.program()), f.program())
	h.Write(b)
	return "packages-" + hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// get returns the file with the result of f, from the cache or built now with build.
func (i *Installer) get(ctx context.Context, f *Fetch, build func(ctx context.Context, f *Fetch, file string) error) (string, error) {
	cache, err := i.env.Cache()
	if err != nil {
		return "", driver.Fail(executor.ErrInternal, executor.RanNo, err)
	}
	name, err := f.key()
	if err != nil {
		return "", err
	}
	dir, err := store.Store{Dir: filepath.Join(cache, i.typ)}.Get(ctx, name, store.CheckHashes, func(ctx context.Context, dir string) error {
		executor.ReportProgress(ctx, executor.Progress{What: "fetching " + strings.Join(f.Requirements, ", ")})
		ctx, cancel := context.WithTimeoutCause(ctx, Timeout, errTime)
		defer cancel()
		return build(ctx, f, filepath.Join(dir, ContentFile))
	})
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	return filepath.Join(dir, ContentFile), err
}

var errTime = fmt.Errorf("fetching packages took more than %v", Timeout)

// asUnavailable is driver.Fail with ErrUnavailable for errors without a class.
func asUnavailable(err error) error {
	if de := (*executor.Error)(nil); errors.As(err, &de) {
		return err
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("fetching packages: %w", err))
}

// aboutPackages marks an error as one about getting packages.
func aboutPackages(p executor.Packages, err error) error {
	var de *executor.Error
	if !errors.As(err, &de) || de.Kind != executor.ErrUnavailable {
		return err
	}
	e := *de
	e.Err = &executor.PackageError{Packages: p, Err: cmp.Or(e.Err, err)}
	return &e
}

// Builder tells a builder its user and a private directory that this user can write. Without a
// directory the builder creates one.
type Builder struct {
	UID int
	Dir string
}

// Build asks a builder for packages and writes its answer to a file. The answer is untrusted, like
// the output of a session. When the connection is closed, also because ctx ends, the builder's
// input ends and so does the builder.
func (i *Installer) Build(ctx context.Context, f *Fetch, b Builder, p Process, file string) error {
	defer context.AfterFunc(ctx, func() { p.Close() })()
	err := i.converse(ctx, f, b, p, file)
	if perr := (*packageError)(nil); err == nil || errors.As(err, &perr) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if !errors.Is(cause, errTime) {
			return cause
		}
		err = errTime
	}
	return asUnavailable(p.explain(err))
}

func (i *Installer) converse(ctx context.Context, f *Fetch, b Builder, conn Process, file string) error {
	ask := map[string]any{"seconds": int(Timeout.Seconds()), "uid": b.UID, "dir": b.Dir, "max": f.Max, "facts": f.Facts}
	r := bufio.NewReaderSize(conn, readBuffer)
	var err error
	if f.Language == executor.JavaScript {
		err = converseJS(ctx, f, ask, conn, r)
	} else {
		err = i.sources.conversePython(f, ask, conn)
	}
	if err != nil {
		return err
	}
	head, raw, err := readHead(r)
	if err != nil {
		return err
	}
	if head.Error != "" || head.Kind != "" {
		return f.explain(head)
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := out.Write(raw); err != nil {
		return err
	}
	size := int64(0)
	for _, p := range head.Files {
		if p.size > f.Max-size {
			return &packageError{fmt.Sprintf("the packages take more than the %d bytes that packages.size allows", f.Max)}
		}
		size += p.size
	}
	if _, err := io.CopyN(out, r, size); err != nil {
		return cut(err)
	}
	return out.Close()
}

// conversePython requests the packages of f, and sends the wheels of the directory.
func (s *Sources) conversePython(f *Fetch, ask map[string]any, conn io.Writer) error {
	wheels := [][2]any{}
	for _, w := range f.Wheels {
		wheels = append(wheels, [2]any{w.Name, w.Size})
	}
	maps.Copy(ask, map[string]any{
		"place": Dirs[executor.Python], "requirements": orEmpty(f.Requirements), "constraints": orEmpty(f.Constraints), "wheels": wheels,
		"index_url": f.IndexURL, "find_links": orEmpty(f.FindLinks), "offline": f.Offline, "trusted": orEmpty(s.trusted()),
	})
	if err := say(conn, ask); err != nil {
		return err
	}
	for _, w := range f.Wheels {
		if err := send(conn, filepath.Join(s.Wheels, w.Name), w.Size); err != nil {
			return err
		}
	}
	return nil
}

func orEmpty(s []string) []string { return append([]string{}, s...) } // never nil, because null is not a list

// send writes a file of a known size.
func send(w io.Writer, name string, size int64) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, size)
	return cut(err)
}

// readHead reads the description of what was fetched, and also returns its text.
func readHead(r *bufio.Reader) (head fetched, raw []byte, err error) {
	raw, err = readLine(r, maxHead)
	if err != nil {
		return head, nil, err
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return head, nil, fmt.Errorf("the description of packages: %w", err)
	}
	return head, raw, nil
}

var errLine = errors.New("a line without an end")

// readLine reads a line of at most most bytes, including its end.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > most:
			return nil, errLine
		case err == nil:
			return line, nil
		case err != bufio.ErrBufferFull:
			return nil, cut(err)
		}
	}
}

// explain converts a builder's error.
func (f *Fetch) explain(head fetched) error {
	text := strings.ToValidUTF8(head.Error, "\uFFFD")
	switch head.Kind {
	case "no-pip":
		return &executor.Error{
			Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: []string{"pip>=22.2"},
			Err: fmt.Errorf("what sandboxes are made from cannot fetch packages: use an image or a template with pip 22.2 or later, or with the packages in it (%s)", lastLine(text)),
		}
	case "unreachable":
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("fetching packages: the %s cannot be reached: %s", f.source(), lastLine(text)))
	case "changed":
		return &packageError{"what the sandbox was made from is not what it is made from now, or its code has changed the packages of its Python; use a new session"}
	case "size":
		return &packageError{lastLine(text)}
	}
	if f.Language == executor.JavaScript {
		return &packageError{bounded(text)}
	}
	text = pipErrors(text)
	if f.Offline {
		text += "\nonly the directory packages.wheels is looked at"
	}
	return &packageError{text}
}

// source returns the source of packages, for errors.
func (f *Fetch) source() string {
	if f.Language == executor.JavaScript {
		return "registry"
	}
	return "index"
}

// maxPipErrors bounds the messages of pip or a registry that are passed on.
const maxPipErrors = 4 << 10

func bounded(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxPipErrors)], "") }

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return bounded(text)
}

// pipErrors extracts the errors from pip's output, without the advice for people at a terminal.
func pipErrors(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "To fix this") || len(lines) > 0 && strings.HasPrefix(line, "Exception information") {
			break
		}
		if len(lines) == 0 && !strings.HasPrefix(line, "ERROR:") || line == "" || strings.HasPrefix(line, "WARNING:") || strings.HasPrefix(line, "[notice]") {
			continue
		}
		lines = append(lines, strings.TrimPrefix(line, "ERROR: "))
	}
	if len(lines) == 0 {
		return "pip failed: " + lastLine(text)
	}
	text = strings.Join(lines, "\n")
	return bounded(text) + "\nPackages are installed from wheels for the Python of the sandbox; one that has none cannot be installed."
}

// cut turns an early end of the input into an error.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
