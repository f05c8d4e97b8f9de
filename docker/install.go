package docker

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npm"
	"github.com/execbroker/execbroker/internal/requirement"
)

//go:embed program/place.py
var placeProgram string

const maxHave = 1 << 20 // of the list of what a sandbox has

// order is what somebody wants to have, of one language.
type order struct {
	language executor.Language
	python   []requirement.Requirement
	js       []npm.Requirement
}

// Install implements driver.Installer. That a package does not exist, or does not go with another, is a result.
func (s *session) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	o := order{language: p.Language}
	var err error
	if p.Language == executor.JavaScript {
		o.js, err = s.b.allowed.js.parse(p.Names)
	} else {
		o.python, err = s.b.allowed.parse(p.Names)
	}
	if err != nil {
		return driver.Exit{Code: -1}, err
	}
	return s.install(ctx, o, emit)
}

// preinstall installs the packages of a template.
func (s *session) preinstall(ctx context.Context, packages map[executor.Language][]string) (err error) {
	for _, l := range slices.Sorted(maps.Keys(packages)) {
		o := order{language: l}
		if l == executor.JavaScript {
			o.js, err = parseJS(packages[l])
		} else {
			o.python, err = parseAll(packages[l])
		}
		if err != nil {
			return err
		}
		exit, err := s.install(ctx, o, func(executor.Event) error { return nil })
		if err != nil {
			return err
		}
		if exit.Exception != nil {
			return driver.Fail(executor.ErrInvalid, executor.RanNo, fmt.Errorf("packages of template %s: %s", s.info.Template, exit.Exception.Message))
		}
	}
	return nil
}

// install fetches packages and puts them into the sandbox, in a directory that code cannot change.
func (s *session) install(ctx context.Context, o order, emit func(executor.Event) error) (driver.Exit, error) {
	failed := driver.Exit{Code: -1}
	r, err := s.Client(ctx)
	if err != nil {
		return failed, err
	}
	if err := r.Ping(ctx); err != nil { // a later holder may have taken over
		return failed, s.Explain(ctx, err)
	}
	use, done := context.WithCancel(ctx)
	var using sync.WaitGroup
	using.Go(func() { s.stayUsed(use) })
	defer using.Wait()
	defer done()

	t, err := s.b.engine.place(ctx, s.container, o.language)
	if err != nil {
		return failed, err
	}
	defer t.Close()
	defer context.AfterFunc(ctx, func() { t.Close() })()
	if err := emit(executor.Event{Kind: executor.EventStarted}); err != nil {
		return failed, err
	}
	head, err := s.bring(ctx, t, o, r.Info().Python)
	if perr := (*packageError)(nil); errors.As(err, &perr) {
		if err := emit(executor.Event{Kind: executor.EventStderr, Data: []byte(perr.text + "\n")}); err != nil {
			return failed, err
		}
		first, _, _ := strings.Cut(perr.text, "\n")
		return driver.Exit{Code: 1, Exception: &executor.Exception{Type: "PackageError", Message: first}}, nil
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return failed, cause
		}
		return failed, s.Explain(ctx, asUnavailable(err))
	}
	for _, p := range head.Packages {
		if err := emit(executor.Event{Kind: executor.EventStdout, Data: fmt.Appendf(nil, "%s %s\n", p[0], p[1])}); err != nil {
			return failed, err
		}
	}
	for _, n := range head.Notes {
		if err := emit(executor.Event{Kind: executor.EventStderr, Data: []byte(n + "\n")}); err != nil {
			return failed, err
		}
	}
	return driver.Exit{}, nil
}

// fetchPython returns what a session that has some packages needs for others: nil if nothing.
func (b *backend) fetchPython(rs []requirement.Requirement, python string, have []installed) (*fetch, error) {
	p := &b.cfg.Packages
	f := &fetch{Python: python, Constraints: b.allowed.constraints(), IndexURL: p.IndexURL, FindLinks: p.FindLinks, Offline: p.offline(), Max: b.cfg.packagesSize()}
	for _, r := range rs {
		has := func(h installed) bool { return h.name == r.Name && len(r.Extras) == 0 && r.Allows(h.version) }
		if !slices.ContainsFunc(have, has) {
			f.Requirements = append(f.Requirements, r.String())
		}
	}
	if len(f.Requirements) == 0 {
		return nil, nil
	}
	for _, h := range have {
		f.Constraints = append(f.Constraints, h.name+"=="+h.version) // what is in use stays as it is
	}
	slices.Sort(f.Constraints)
	var err error
	f.Wheels, err = p.wheels()
	return f, err
}

// bring gives a sandbox what it asks for and does not have.
func (s *session) bring(ctx context.Context, t *placer, o order, python string) (head fetched, err error) {
	var f *fetch
	if o.language == executor.JavaScript {
		f = s.b.fetchJS(o.js, t.have)
	} else {
		f, err = s.b.fetchPython(o.python, python, t.have)
	}
	if err != nil || f == nil {
		return head, err
	}
	f.Image, f.Insecure = s.image, s.b.cfg.Packages.Insecure
	name, err := s.b.fetch(ctx, f)
	if err != nil {
		return head, err
	}
	content, err := os.Open(name)
	if err != nil {
		return head, err
	}
	defer content.Close()
	head, _, err = readHead(bufio.NewReader(content))
	if err != nil {
		return head, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return head, err
	}
	return head, t.put(content)
}

// stayUsed keeps a session from being idle until ctx ends: its supervisor does not know of installations.
func (s *session) stayUsed(ctx context.Context) {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_, _ = s.Files().Stat(ctx, executor.Workdir) // if it fails the next one may not
		}
	}
}

// placer is a process in a sandbox that puts packages where code cannot change them.
type placer struct {
	*stdio
	r    *bufio.Reader
	dir  string
	have []installed
}

// installed is a package that a sandbox has besides those of its image.
type installed struct{ name, version string }

// place starts a placer, which says at once what the sandbox has.
func (e *engine) place(ctx context.Context, id string, l executor.Language) (*placer, error) {
	actx, cancel := e.answer(ctx)
	defer cancel()
	conn, err := e.beside(actx, id, []string{python, "-I", "-S", "-c", placeProgram, packagesDirs[l], strconv.Itoa(int(fetchTimeout.Seconds()))})
	if err != nil {
		return nil, err
	}
	t := &placer{stdio: conn, dir: packagesDirs[l]}
	t.r = bufio.NewReader(t.stdio)
	stop := context.AfterFunc(actx, func() { t.Close() })
	var said struct {
		Error string
		Have  [][2]string
	}
	err = t.hear(&said)
	if !stop() && err == nil {
		err = context.Cause(actx)
	}
	if err == nil && said.Error != "" {
		t.Close()
		return nil, unsupported(errors.New("the sandbox was made without room for packages: the configuration had none then"), string(executor.FeaturePackages))
	}
	for _, h := range said.Have {
		// Names and versions are those of directories that the packages' authors have named.
		if l == executor.JavaScript {
			t.have = append(t.have, installed{h[0], h[1]})
		} else if r, perr := requirement.Parse(h[0] + "==" + h[1]); perr == nil {
			t.have = append(t.have, installed{r.Name, h[1]})
		}
	}
	if err != nil {
		t.Close()
		return nil, e.notBridged(actx, id, err)
	}
	return t, nil
}

// hear reads a line of what the placer says. It is not code, but code shares its memory and its processors.
func (t *placer) hear(v any) error {
	line, err := readLine(t.r, maxHave)
	if err != nil {
		if said := t.stderr(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return err
	}
	return json.Unmarshal(line, v)
}

// put sends the content of packages.
func (t *placer) put(content io.Reader) error {
	if _, err := io.Copy(t.Conn, content); err != nil {
		return err
	}
	var said struct{ Error string }
	if err := t.hear(&said); err != nil {
		return err
	}
	if said.Error != "" {
		return &packageError{fmt.Sprintf("%s: %s; packages.size may be too small for all that was installed", t.dir, said.Error)}
	}
	return nil
}
