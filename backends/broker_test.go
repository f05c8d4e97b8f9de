package backends_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// toyConfig is the configuration of the type "toy".
type toyConfig struct {
	Image string          `json:"image"`
	Size  int             `json:"size"`
	Wait  driver.Duration `json:"wait"`
	Key   driver.Secret   `json:"key"`
	Fail  string          `json:"fail"` // "open" or "close"
}

func (c toyConfig) Validate() error {
	if c.Size > 10 {
		return driver.At("size", errors.New("at most 10"))
	}
	return nil
}

// journal records the calls to toys.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// toy is an Executor that only records its calls.
type toy struct {
	executor.BaseExecutor
	env    driver.Env
	cfg    toyConfig
	log    *journal
	closed int
}

func (x *toy) Info() executor.Info {
	return executor.Info{Name: x.env.Name, Type: "toy", Capabilities: executor.Capabilities{
		Features: []executor.Feature{executor.FeatureNetworkNone, executor.FeatureAttach, executor.FeatureList},
	}}
}

func (x *toy) Create(_ context.Context, s executor.Spec) (executor.Session, error) {
	x.log.add("%s create %s", x.env.Name, s.Subject)
	return nil, &executor.Error{Op: "create", Backend: x.env.Name, Kind: executor.ErrExhausted, Ran: executor.RanNo}
}

func (x *toy) Destroy(_ context.Context, h executor.Handle) error {
	x.log.add("%s destroy %s", x.env.Name, h.Session)
	return nil
}

func (x *toy) Attach(_ context.Context, h executor.Handle) (executor.Session, error) {
	x.log.add("%s attach %s", x.env.Name, h.Session)
	return &toySession{h: h}, nil
}

// toySession is a session of a toy.
type toySession struct {
	executor.BaseSession
	h executor.Handle
}

func (s *toySession) Info() executor.SessionInfo { return executor.SessionInfo{Handle: s.h} }

func (s *toySession) Run(context.Context, executor.Request, func(executor.Event) error) (*executor.Result, error) {
	return &executor.Result{Status: executor.StatusOK}, nil
}

func (s *toySession) Close() error { return nil }

func (x *toy) Sessions(context.Context, map[string]string) iter.Seq2[executor.SessionInfo, error] {
	return func(yield func(executor.SessionInfo, error) bool) {
		_ = yield(executor.SessionInfo{Handle: executor.Handle{Backend: x.env.Name, Session: "1"}}, nil) &&
			yield(executor.SessionInfo{}, io.ErrUnexpectedEOF)
	}
}

func (x *toy) Close() error {
	x.log.add("%s close", x.env.Name)
	if x.closed++; x.cfg.Fail == "close" && x.closed == 1 {
		return &executor.Error{Op: "close", Backend: x.env.Name, Kind: executor.ErrUnavailable}
	}
	return nil
}

// registry has the type "toy", which records its calls in logs.
func registry(logs ...*journal) *backends.Registry {
	log := new(journal)
	if len(logs) > 0 {
		log = logs[0]
	}
	toys := driver.NewFactory("toy",
		func(_ context.Context, env driver.Env, c toyConfig) (executor.Executor, error) {
			log.add("%s open %s %s", env.Name, c.Image, env.Owner)
			if c.Fail == "open" {
				return nil, errors.New("no key")
			}
			return &toy{env: env, cfg: c, log: log}, nil
		},
		func(_ context.Context, env driver.Env, c toyConfig) []driver.Check {
			return []driver.Check{{Name: "image", OK: c.Image != "", Detail: env.Name, Fix: "give one"}}
		})
	toys = driver.WithSetup(toys, func(_ context.Context, env driver.Env, c toyConfig) error {
		log.add("%s setup %s", env.Name, c.Image)
		if c.Fail == "setup" {
			return errors.New("no network")
		}
		return nil
	})
	return backends.NewRegistry(toys, driver.NewFactory[struct{}]("other", nil, nil))
}

func parse(t testing.TB, data string) backends.Config {
	t.Helper()
	c, err := backends.Parse([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, log *journal, data string) (*backends.Broker, error) {
	return backends.Open(t.Context(), driver.Env{Name: "all", Owner: "me"}, registry(log), parse(t, data))
}

func TestBrokerWithOneBackendIsIt(t *testing.T) {
	var log journal
	b, err := open(t, &log, "backends: {box: {type: toy, image: x}}")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Info(); got.Name != "box" || got.Type != "toy" {
		t.Errorf("got %+v", got)
	}
	if _, err := b.Create(t.Context(), executor.Spec{Subject: "s"}); !errors.Is(err, executor.ErrExhausted) {
		t.Errorf("got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if want := []string{"box open x me", "box create s", "box close"}; !reflect.DeepEqual(log.lines, want) {
		t.Errorf("got %q, want %q", log.lines, want)
	}
}

func TestBrokerWithSeveralBackends(t *testing.T) {
	var log journal
	b, err := open(t, &log, "backends: {two: {type: toy, image: b}, one: {type: toy, image: a, fail: close}}")
	if err != nil {
		t.Fatal(err)
	}
	var e *executor.Error
	if _, err := b.Create(t.Context(), executor.Spec{}); !errors.As(err, &e) || e.Kind != executor.ErrInvalid || e.Ran != executor.RanNo {
		t.Errorf("create: got %v", err)
	} else if !strings.Contains(err.Error(), "one, two") {
		t.Errorf("create: got %v, which does not say what there is", err)
	}
	if _, err := b.Attach(t.Context(), executor.Handle{Backend: "two", Session: "1"}); err != nil {
		t.Errorf("attach: got %v", err)
	}
	if err := b.Destroy(t.Context(), executor.Handle{Backend: "one", Session: "2"}); err != nil {
		t.Errorf("destroy: got %v", err)
	}
	if _, err := b.Attach(t.Context(), executor.Handle{Backend: "three"}); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("attach: got %v", err)
	}
	if err := b.Destroy(t.Context(), executor.Handle{Backend: "three"}); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("destroy: got %v", err)
	}
	if x, ok := b.Backend("one"); !ok || x.Info().Name != "one" {
		t.Errorf("backend: got %v, %v", x, ok)
	}
	if _, ok := b.Backend("three"); ok {
		t.Error("backend: got one that is not configured")
	}
	var listed []string
	for info, err := range b.Sessions(t.Context(), nil) {
		listed = append(listed, fmt.Sprint(info.Handle.Backend, err))
	}
	slices.Sort(listed) // all are asked at the same time
	if want := []string{"one<nil>", "two<nil>", "unexpected EOF", "unexpected EOF"}; !reflect.DeepEqual(listed, want) {
		t.Errorf("sessions: got %q, want %q", listed, want)
	}
	for range b.Sessions(t.Context(), nil) {
		break
	}
	if err := b.Close(); !errors.As(err, &e) || e.Kind != executor.ErrUnavailable {
		t.Errorf("close: got %v", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("close again: got %v", err)
	}
	if want := []string{"one open a me", "two open b me", "two attach 1", "one destroy 2"}; !reflect.DeepEqual(log.lines[:4], want) {
		t.Errorf("got %q, want %q", log.lines, want)
	}
}

func TestOpenIsAllOrNothing(t *testing.T) {
	var log journal
	_, err := open(t, &log, "backends: {a: {type: toy}, b: {type: toy, fail: open}, c: {type: toy}, d: {type: toy, fail: open}}")
	if want := "backends.b: no key (line 1, column 28)\nbackends.d: no key (line 1, column 72)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	closed := 0
	for _, l := range log.lines {
		if strings.HasSuffix(l, " close") {
			closed++
		}
	}
	if closed != 2 {
		t.Errorf("got %q, want two closed", log.lines)
	}
}

func TestOpenChecksFirst(t *testing.T) {
	var log journal
	_, err := open(t, &log, "backends: {a: {type: toy}, b: {type: toy, size: 11}}")
	if want := "backends.b.size: at most 10 (line 1, column 43)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if log.lines != nil {
		t.Errorf("got %q", log.lines)
	}
}

func TestDoctor(t *testing.T) {
	reg := registry()
	c := parse(t, "backends: {good: {type: toy, image: x}, bad: {type: toy}, odd: {type: toi}, plain: {type: other}}")
	got := backends.Doctor(t.Context(), driver.Env{Owner: "me"}, reg, c)
	decoded := driver.Check{Name: "configuration", OK: true}
	want := map[string][]driver.Check{
		"good":  {decoded, {Name: "image", OK: true, Detail: "good", Fix: "give one"}},
		"bad":   {decoded, {Name: "image", Detail: "bad", Fix: "give one"}},
		"odd":   {{Name: "configuration", Detail: `type: unknown type "toi"; did you mean "toy"?`, Fix: "correct the entry odd of the configuration"}},
		"plain": {decoded},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	b, err := open(t, new(journal), "backends: {good: {type: toy, image: x}}")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := b.Doctor(t.Context()); !reflect.DeepEqual(got["good"], want["good"]) || len(got) != 1 {
		t.Errorf("got %+v of the broker", got)
	}
}

func TestSetup(t *testing.T) {
	var log journal
	reg := registry(&log)
	c := parse(t, "backends: {a: {type: toy, image: x, fail: setup}, b: {type: toy, image: y}, c: {type: other}}")
	err := backends.Setup(t.Context(), driver.Env{Owner: "me"}, reg, c)
	if want := "backends.a: no network"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if want := []string{"a setup x", "b setup y"}; !reflect.DeepEqual(log.lines, want) {
		t.Errorf("got %q, want %q", log.lines, want)
	}
	if err := backends.Setup(t.Context(), driver.Env{}, reg, parse(t, "backends: {a: {type: toi}}")); err == nil {
		t.Error("got no error of a wrong configuration")
	}
}

func TestRegistryPanicsOnTwins(t *testing.T) {
	f := driver.NewFactory[struct{}]("x", nil, nil)
	for name, fs := range map[string][]driver.Factory{"twice": {f, f}, "empty": {driver.NewFactory[struct{}]("", nil, nil)}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			backends.NewRegistry(fs...)
		}()
	}
}
