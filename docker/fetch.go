package docker

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/store"
)

// The programs of builders: a beginning, and what follows for a language.
var (
	//go:embed program/builder.py
	builderProgram string
	//go:embed program/pip.py
	pipProgram string
	//go:embed program/npm.py
	npmProgram string
)

// The bounds of what a builder may say and do.
const (
	maxHead       = 16 << 20 // of the description of what was fetched
	fetchTimeout  = 10 * time.Minute
	builderMemory = 512 << 20
)

// labelBuilder marks a container that fetches packages. Its value is what labels of sessions have in driver.LabelID: it is none.
const labelBuilder = executor.ReservedPrefix + "docker.builder"

// contentFile holds what a builder has said, as it said it: a line of JSON, then the contents of the files.
const contentFile = "content"

// fetch describes what is to be fetched. It is all that decides what the result is, but for what an index has at that time.
type fetch struct {
	Image        string   `json:"image"`
	Python       string   `json:"python"`
	Requirements []string `json:"requirements"`
	Constraints  []string `json:"constraints"` // from the list, and what a session has already
	IndexURL     string   `json:"index_url"`
	FindLinks    []string `json:"find_links"`
	Wheels       []wheel  `json:"wheels"`
	Offline      bool     `json:"offline"`
	Max          int64    `json:"max"`

	// Of JavaScript alone.
	Language executor.Language `json:"language,omitempty"`
	Registry string            `json:"registry,omitempty"`
	Insecure bool              `json:"insecure,omitempty"`
	Have     [][2]string       `json:"have,omitempty"` // names and versions
}

// program is what runs in the builder.
func (f *fetch) program() string {
	if f.Language == executor.JavaScript {
		return builderProgram + npmProgram
	}
	return builderProgram + pipProgram
}

// wheel is a file of the directory of wheels.
type wheel struct {
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"time"`
}

// fetched is the head of what a builder has made.
type fetched struct {
	Kind     string       `json:"kind"` // of an error
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

// packageError says that packages cannot be installed, for reasons of their own.
type packageError struct{ text string }

// Error implements error.
func (e *packageError) Error() string { return e.text }

// wheels lists the directory of wheels.
func (p *Packages) wheels() ([]wheel, error) {
	if p.Wheels == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(p.Wheels)
	if err != nil {
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	var ws []wheel
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() && filepath.Ext(e.Name()) == ".whl" {
			ws = append(ws, wheel{e.Name(), st.Size(), st.ModTime().UTC()})
		}
	}
	return ws, nil
}

// key names the result of f in the cache.
func (f *fetch) key() (string, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, len(f.program()), f.program())
	h.Write(b)
	return "packages-" + hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// fetch returns the file with what f asks for: from the cache, or fetched now.
func (b *backend) fetch(ctx context.Context, f *fetch) (string, error) {
	cache, err := b.env.Cache()
	if err != nil {
		return "", driver.Fail(executor.ErrInternal, executor.RanNo, err)
	}
	name, err := f.key()
	if err != nil {
		return "", err
	}
	s := store.Store{Dir: filepath.Join(cache, "docker")}
	dir, err := s.Get(ctx, name, store.CheckHashes, func(ctx context.Context, dir string) error {
		executor.ReportProgress(ctx, executor.Progress{What: "fetching " + strings.Join(f.Requirements, ", ")})
		return b.build(ctx, f, filepath.Join(dir, contentFile))
	})
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	return filepath.Join(dir, contentFile), err
}

// build fetches packages in a container of their own, into a file.
func (b *backend) build(ctx context.Context, f *fetch, file string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, errFetchTime)
	defer cancel()
	e := b.engine
	facts, err := e.facts(ctx)
	if err != nil {
		return err
	}
	img, err := e.inspect(ctx, f.Image, facts)
	if err != nil {
		return e.fail(ctx, err)
	}
	x := b.builder(f, img, facts)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
		defer cancel()
		if derr := e.undo(ctx, x.id, err); derr != nil {
			b.log().Warn("a container that fetched packages may be left; it ends by itself", "container", containerName(x.id), "error", derr)
		}
	}()
	o := x.options(facts)
	o.Config.StdinOnce = true // when this process dies its input ends, and it ends itself
	actx, stop := e.answer(ctx)
	defer stop()
	_, conn, err := b.launch(actx, o)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err = converse(ctx, b, f, x.uid, conn, file)
	if perr := (*packageError)(nil); err == nil || errors.As(err, &perr) {
		return err
	}
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); cause != errFetchTime {
			return cause
		}
		err = errFetchTime
	}
	if said := conn.stderr(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return asUnavailable(err)
}

// builder returns the container that fetches f. It has the protections of sessions.
func (b *backend) builder(f *fetch, img image, facts *facts) *box {
	id := strings.ToLower(rand.Text())
	box := &box{
		id: id, image: img, command: []string{python, "-I", "-c", f.program()}, runtime: b.cfg.Runtime,
		network: cmp.Or(b.cfg.Packages.Network, "bridge"),
		want: executor.Limits{
			CPUs: min(2, float64(facts.info.NCPU)), MemoryBytes: builderMemory, DiskBytes: 4*f.Max + 64<<20, Processes: defaultProcesses,
		},
		uid: facts.userID(id), mapped: facts.mapped(),
		labels: map[string]string{driver.LabelOwner: b.env.Owner, driver.LabelInstance: b.env.Instance, labelBuilder: id},
	}
	if f.Offline {
		box.network = string(executor.NetworkNone)
	}
	return box
}

var errFetchTime = fmt.Errorf("fetching packages took more than %v", fetchTimeout)

// asUnavailable is driver.Fail for what nobody has classified.
func asUnavailable(err error) error {
	if de := (*executor.Error)(nil); errors.As(err, &de) {
		return err
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("fetching packages: %w", err))
}

// converse asks a builder and writes its answer into a file. What it says is believed as little as what a session says.
func converse(ctx context.Context, b *backend, f *fetch, uid int, conn *stdio, file string) error {
	ask := map[string]any{"seconds": int(fetchTimeout.Seconds()), "uid": uid, "dir": executor.Workdir, "max": f.Max}
	r := bufio.NewReaderSize(conn, readBuffer)
	var err error
	if f.Language == executor.JavaScript {
		err = converseJS(ctx, f, ask, conn, r)
	} else {
		err = conversePython(&b.cfg.Packages, f, ask, conn)
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

// conversePython asks for what f names, and gives the wheels of the directory along.
func conversePython(p *Packages, f *fetch, ask map[string]any, conn io.Writer) error {
	wheels := [][2]any{}
	for _, w := range f.Wheels {
		wheels = append(wheels, [2]any{w.Name, w.Size})
	}
	maps.Copy(ask, map[string]any{
		"place": packagesDirs[executor.Python], "requirements": orEmpty(f.Requirements), "constraints": orEmpty(f.Constraints), "wheels": wheels,
		"index_url": f.IndexURL, "find_links": orEmpty(f.FindLinks), "offline": f.Offline, "trusted": orEmpty(p.trusted()),
	})
	if err := say(conn, ask); err != nil {
		return err
	}
	for _, w := range f.Wheels {
		if err := send(conn, filepath.Join(p.Wheels, w.Name), w.Size); err != nil {
			return err
		}
	}
	return nil
}

func orEmpty(s []string) []string { return append([]string{}, s...) } // null is no list

// trusted returns the hosts that pip would otherwise not believe.
func (p *Packages) trusted() []string {
	var hosts []string
	for _, text := range append([]string{p.IndexURL}, p.FindLinks...) {
		if u, err := url.Parse(text); err == nil && u.Scheme == "http" && !slices.Contains(hosts, u.Host) {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

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

// readHead reads the description of what was fetched, and returns its text as well.
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

// readLine reads a line of at most so many bytes, its end included.
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

// explain makes an error of what a builder says went wrong.
func (f *fetch) explain(head fetched) error {
	text := strings.ToValidUTF8(head.Error, "\uFFFD")
	switch head.Kind {
	case "no-pip":
		return unsupported(fmt.Errorf("the image cannot fetch packages: use one with pip 22.2 or later, or with the packages in it (%s)", lastLine(text)), "pip>=22.2")
	case "unreachable":
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("fetching packages: the %s cannot be reached: %s", f.source(), lastLine(text)))
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

// source is what packages come from.
func (f *fetch) source() string {
	if f.Language == executor.JavaScript {
		return "registry"
	}
	return "index"
}

// maxPipErrors bounds what is passed on of what pip or a registry says.
const maxPipErrors = 4 << 10

func bounded(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxPipErrors)], "") }

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return bounded(text)
}

// pipErrors returns of what pip has said what was wrong, without what it advises to people at a terminal.
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
	return bounded(text) + "\nPackages are installed from wheels for this image's Python; one that has none cannot be installed."
}
