package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// runFunc is what a sandbox does with a request.
type runFunc = func(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error)

// cloud is a provider in memory, with a function for everything that a test may want otherwise.
// Several drivers may use one cloud.
type cloud struct {
	caps executor.Capabilities

	create    func(ctx context.Context, c *driver.Create) error // before the sandbox is made
	run       runFunc
	install   func(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error)
	destroy   func(ctx context.Context, id string) error // before it is removed
	detach    func() error
	attach    func(ctx context.Context, h executor.Handle) (driver.Session, error)
	refresh   func(ctx context.Context) (executor.SessionInfo, error)
	reset     func(ctx context.Context, which executor.Interpreter) error
	keepAlive func(ctx context.Context, idle time.Duration) (time.Time, error)
	info      func(*executor.SessionInfo)
	close     func() error
	files     driver.Files
	foreign   []executor.SessionInfo // listed besides

	mu      sync.Mutex
	boxes   map[string]*box
	creates []*driver.Create
	closed  int
}

// box is a sandbox.
type box struct {
	id      string
	labels  map[string]string
	state   executor.SessionState
	created time.Time
}

var full = executor.Capabilities{
	Features: []executor.Feature{
		executor.FeatureCode, executor.FeatureCommand, executor.FeatureMixedLanguages, executor.FeatureParallelRuns, executor.FeatureFilesDuringRun,
		executor.FeatureAttach, executor.FeatureFencing, executor.FeatureList, executor.FeatureKeepAlive,
		executor.FeatureNetworkNone, executor.FeatureLimitMemory, executor.FeatureAliases,
	},
	Languages: []executor.Runtime{
		{Language: executor.Python, Features: []executor.Feature{
			executor.FeatureState, executor.FeatureContexts, executor.FeatureFiles, executor.FeaturePackages, executor.FeatureDir,
			executor.FeatureArtifacts, executor.FeatureExitCode, executor.FeatureEnv,
		}},
		{Language: executor.JavaScript, Features: []executor.Feature{executor.FeatureState, executor.FeatureFiles}},
	},
	Templates: []string{"data"},
	Isolation: executor.IsolationContainer,
}

// without returns c without some features, in general or of all languages.
func without(c executor.Capabilities, fs ...executor.Feature) executor.Capabilities {
	gone := func(f executor.Feature) bool { return slices.Contains(fs, f) }
	c.Features = slices.DeleteFunc(slices.Clone(c.Features), gone)
	c.Languages = slices.Clone(c.Languages)
	for i := range c.Languages {
		c.Languages[i].Features = slices.DeleteFunc(slices.Clone(c.Languages[i].Features), gone)
	}
	return c
}

// small has one language and no choice.
var small = executor.Capabilities{
	Features:  []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone},
	Languages: []executor.Runtime{{Language: executor.Python}},
}

func newCloud() *cloud { return &cloud{caps: full, boxes: map[string]*box{}} }

// smallDriver has nothing optional.
type smallDriver struct{ c *cloud }

func (d smallDriver) Capabilities() executor.Capabilities { return d.c.caps }

func (d smallDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	b, err := d.c.start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &smallSession{d.c, b}, nil
}

func (d smallDriver) Close() error {
	d.c.mu.Lock()
	d.c.closed++
	d.c.mu.Unlock()
	if d.c.close != nil {
		return d.c.close()
	}
	return nil
}

func (c *cloud) start(ctx context.Context, req *driver.Create) (*box, error) {
	if c.create != nil {
		if err := c.create(ctx, req); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creates = append(c.creates, req)
	b := &box{id: "box-" + req.ID, labels: maps.Clone(req.Labels), state: executor.SessionRunning, created: time.Now()}
	c.boxes[b.id] = b
	return b, nil
}

// count returns how many sandboxes there are.
func (c *cloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.boxes)
}

func (c *cloud) closes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *cloud) remove(ctx context.Context, id string) error {
	if c.destroy != nil {
		if err := c.destroy(ctx, id); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.boxes, id)
	return nil
}

// smallSession has nothing optional.
type smallSession struct {
	c *cloud
	b *box
}

func (s *smallSession) Info() executor.SessionInfo {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	i := s.b.info()
	if s.c.info != nil {
		s.c.info(&i)
	}
	return i
}

func (b *box) info() executor.SessionInfo {
	return executor.SessionInfo{Handle: executor.Handle{Session: b.id}, State: b.state, Labels: maps.Clone(b.labels), Created: b.created}
}

func (s *smallSession) Run(ctx context.Context, req *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if s.c.run != nil {
		return s.c.run(ctx, req, emit)
	}
	return driver.Exit{}, emit(executor.Event{Kind: executor.EventStarted, Cell: 1})
}

func (s *smallSession) Destroy(ctx context.Context) error { return s.c.remove(ctx, s.b.id) }

// fullDriver and fullSession have everything; partDriver has only the sessions.
type (
	fullDriver struct{ partDriver }
	partDriver struct{ smallDriver }
)

func (d partDriver) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	b, err := d.c.start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &fullSession{smallSession{d.c, b}}, nil
}

func (d fullDriver) find(id string) (*box, error) {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	if b := d.c.boxes[id]; b != nil {
		return b, nil
	}
	return nil, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
}

func (d fullDriver) Lookup(_ context.Context, h executor.Handle) (executor.SessionInfo, error) {
	b, err := d.find(h.Session)
	if err != nil {
		return executor.SessionInfo{}, err
	}
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return b.info(), nil
}

func (d fullDriver) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	if d.c.attach != nil {
		return d.c.attach(ctx, h)
	}
	b, err := d.find(h.Session)
	return &fullSession{smallSession{d.c, b}}, err
}

func (d fullDriver) Destroy(ctx context.Context, h executor.Handle) error {
	return d.c.remove(ctx, h.Session)
}

// Sessions ignores the labels: New has to check them.
func (d fullDriver) Sessions(context.Context, map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		d.c.mu.Lock()
		infos := slices.Clone(d.c.foreign)
		for _, id := range slices.Sorted(maps.Keys(d.c.boxes)) {
			infos = append(infos, d.c.boxes[id].info())
		}
		d.c.mu.Unlock()
		for _, i := range infos {
			if i.Handle.Session == "error" {
				if !yield(executor.SessionInfo{}, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("one region"))) {
					return
				}
			} else if !yield(i, nil) {
				return
			}
		}
	}
}

type fullSession struct{ smallSession }

func (s *fullSession) Detach() error {
	if s.c.detach != nil {
		return s.c.detach()
	}
	return nil
}

func (s *fullSession) Refresh(ctx context.Context) (executor.SessionInfo, error) {
	if s.c.refresh != nil {
		return s.c.refresh(ctx)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.boxes[s.b.id] == nil {
		return executor.SessionInfo{}, driver.Fail(executor.ErrNotFound, executor.RanNo, nil)
	}
	return s.b.info(), nil
}

func (s *fullSession) Reset(ctx context.Context, which executor.Interpreter) error {
	if s.c.reset != nil {
		return s.c.reset(ctx, which)
	}
	return nil
}

func (s *fullSession) KeepAlive(ctx context.Context, idle time.Duration) (time.Time, error) {
	if s.c.keepAlive != nil {
		return s.c.keepAlive(ctx, idle)
	}
	return time.Now().Add(idle), nil
}

func (s *fullSession) Install(ctx context.Context, p executor.Packages, emit func(executor.Event) error) (driver.Exit, error) {
	if s.c.install != nil {
		return s.c.install(ctx, p, emit)
	}
	return driver.Exit{}, emit(executor.Event{Kind: executor.EventStarted})
}

func (s *fullSession) Files() driver.Files {
	if s.c.files == nil {
		s.c.files = newMemory()
	}
	return s.c.files
}

func (s *fullSession) As(target any) bool {
	p, ok := target.(**cloud)
	if ok {
		*p = s.c
	}
	return ok
}

// memory is a file system of regular files and directories.
type memory struct {
	mu    sync.Mutex
	files map[string]string // directories end with "/"
	list  []executor.FileInfo
	read  func(ctx context.Context, name string) (io.ReadCloser, error)
	stat  func(name string) (executor.FileInfo, error)
	write func(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error
	calls []string
}

func newMemory() *memory { return &memory{files: map[string]string{executor.Workdir + "/": ""}} }

func (m *memory) called(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
}

func (m *memory) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	m.called("read %s", name)
	if m.read != nil {
		return m.read(ctx, name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(strings.NewReader(data)), nil
}

func (m *memory) Write(ctx context.Context, name string, r io.Reader, mode fs.FileMode) error {
	m.called("write %s %v", name, mode)
	if m.write != nil {
		return m.write(ctx, name, r, mode)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, r); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = b.String()
	return nil
}

func (m *memory) Stat(_ context.Context, name string) (executor.FileInfo, error) {
	m.called("stat %s", name)
	if m.stat != nil {
		return m.stat(name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if data, ok := m.files[name]; ok {
		return executor.FileInfo{Name: "ignored", Size: int64(len(data)), Mode: 0o644}, nil
	}
	if _, ok := m.files[name+"/"]; ok {
		return executor.FileInfo{Mode: fs.ModeDir | 0o755}, nil
	}
	return executor.FileInfo{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

func (m *memory) List(_ context.Context, dir string) iter.Seq2[executor.FileInfo, error] {
	m.called("list %s", dir)
	return func(yield func(executor.FileInfo, error) bool) {
		m.mu.Lock()
		list := slices.Clone(m.list)
		for name, data := range m.files {
			if path.Dir(name) == dir && !strings.HasSuffix(name, "/") {
				list = append(list, executor.FileInfo{Name: path.Base(name), Size: int64(len(data)), Mode: 0o644})
			}
		}
		m.mu.Unlock()
		for _, i := range list {
			if !yield(i, nil) {
				return
			}
		}
	}
}

func (m *memory) Mkdir(_ context.Context, name string) error {
	m.called("mkdir %s", name)
	return fs.ErrExist
}

func (m *memory) Rename(_ context.Context, from, to string) error {
	m.called("rename %s %s", from, to)
	return nil
}

func (m *memory) Remove(_ context.Context, name string) error {
	m.called("remove %s", name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[name]; !ok {
		return fs.ErrNotExist
	}
	delete(m.files, name)
	return nil
}

// quick are timeouts that tests can wait for, in the time of synctest.
var quick = driver.Options{
	Type: "cloud", CreateTimeout: 60 * time.Second, StartTimeout: 30 * time.Second, Grace: 5 * time.Second, StopTimeout: 10 * time.Second,
	InstallTimeout: 100 * time.Second, CleanupTimeout: 20 * time.Second,
}

// open opens the cloud as an owner. The Executor is closed at the end of the test if the test has
// not done it.
func (c *cloud) open(t testing.TB, edit ...func(*driver.Env)) executor.Executor {
	t.Helper()
	var d driver.Driver = fullDriver{partDriver{smallDriver{c}}}
	switch {
	case len(c.caps.Features) == len(small.Features):
		d = smallDriver{c}
	case !c.caps.Has(executor.FeatureAttach):
		d = partDriver{smallDriver{c}}
	}
	env := driver.Env{Owner: "owner", Instance: "instance"}
	for _, e := range edit {
		e(&env)
	}
	x, err := driver.New(d, env, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil && !t.Failed() {
			t.Errorf("closing: %v", err)
		}
	})
	return x
}

// session opens the cloud and creates a session.
func (c *cloud) session(t testing.TB, spec executor.Spec) executor.Session {
	t.Helper()
	return create(t, c.open(t), spec)
}

func create(t testing.TB, x executor.Executor, spec executor.Spec) executor.Session {
	t.Helper()
	s, err := x.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantError checks kind and Ran of an error, and that it is complete.
func wantError(t testing.TB, err error, op string, kind error, ran executor.Ran) *executor.Error {
	t.Helper()
	e, ok := err.(*executor.Error) //nolint:errorlint // callers get it bare
	if !ok {
		t.Errorf("got %T %v, want *executor.Error", err, err)
		return &executor.Error{}
	}
	if e.Op != op || e.Kind != kind || e.Ran != ran || e.Backend != "cloud" {
		t.Errorf("got op %q, kind %v, ran %v, backend %q in %v; want %q, %v, %v", e.Op, e.Kind, e.Ran, e.Backend, err, op, kind, ran)
	}
	return e
}

var code = executor.Request{Language: executor.Python, Code: "x"}

// started begins a run.
func started(emit func(executor.Event) error) error {
	return emit(executor.Event{Kind: executor.EventStarted, Cell: 1})
}

// untilEnd runs until its context ends, and is known to have stopped then.
func untilEnd(ctx context.Context, _ *executor.Request, emit func(executor.Event) error) (driver.Exit, error) {
	if err := started(emit); err != nil {
		return driver.Exit{}, err
	}
	<-ctx.Done()
	return driver.Exit{}, context.Cause(ctx)
}
