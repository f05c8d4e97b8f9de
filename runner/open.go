package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

// Open opens a backend whose sandboxes t starts. It is what the Open of an adapter returns, and
// does no remote I/O. It fails for the reasons for which driver.New does, and if Options name a
// language that the runner does not run.
func Open(env driver.Env, t Transport, o Options) (executor.Executor, error) {
	env = env.WithInstance()
	d, err := New(env, t, o)
	if err != nil {
		return nil, err
	}
	return driver.New(d, env, o.Options)
}

// New returns the Driver that Open passes to driver.New, for an adapter that adds something of its
// own to it. Its sessions implement every interface of package driver that a session can.
func New(env driver.Env, t Transport, o Options) (driver.Driver, error) {
	o.Python = cmp.Or(o.Python, "python3")
	o.AnswerTimeout = cmp.Or(o.AnswerTimeout, time.Minute)
	o.CleanupTimeout = cmp.Or(o.CleanupTimeout, 30*time.Second)
	if err := driver.Choices("language", o.languages(), Languages); err != nil {
		return nil, fmt.Errorf("options: Capabilities.Languages: %w", err)
	}
	env = env.WithInstance() // of sessions, and of what fetches packages for them
	installer, err := packages.New(env, o.Type, (*packages.Sources)(&o.Packages))
	if err != nil {
		return nil, err
	}
	b := &backend{t: t, env: env, o: o, installer: installer}
	f, finds := t.(Finder)
	l, lists := t.(driver.Lister)
	switch {
	case finds && lists:
		return &struct {
			*finder
			driver.Lister
		}{&finder{b, f}, l}, nil
	case finds:
		return &finder{b, f}, nil
	case lists:
		return &struct {
			*backend
			driver.Lister
		}{b, l}, nil
	}
	return b, nil
}

// languages returns the names of the languages, the default among them.
func (o *Options) languages() (ls []executor.Language) {
	for _, r := range o.Capabilities.Languages {
		ls = append(ls, r.Language)
	}
	if len(ls) == 0 {
		ls = []executor.Language{executor.Python}
	}
	return ls
}

// backend is a driver.Driver over a Transport.
type backend struct {
	t         Transport
	env       driver.Env
	o         Options
	installer *packages.Installer

	compilations compilations
}

var _ driver.Driver = (*backend)(nil)

// Capabilities implements driver.Driver.
func (b *backend) Capabilities() executor.Capabilities {
	c := b.o.Capabilities
	add := func(to *[]executor.Feature, more ...executor.Feature) {
		*to = slices.Clone(*to)
		for _, f := range more {
			if !slices.Contains(*to, f) && !slices.Contains(b.o.Without, f) {
				*to = append(*to, f)
			}
		}
	}
	add(&c.Features, sessionFeatures...)
	if _, ok := b.t.(Finder); ok {
		add(&c.Features, executor.FeatureAttach, executor.FeatureFencing)
	}
	if _, ok := b.t.(driver.Lister); ok {
		add(&c.Features, executor.FeatureList)
	}
	declared := c.Languages
	c.Languages = nil
	for _, l := range b.o.languages() {
		r := executor.Runtime{Language: l}
		if i := slices.IndexFunc(declared, func(r executor.Runtime) bool { return r.Language == l }); i >= 0 {
			r = declared[i]
		}
		add(&r.Features, languageFeatures...)
		if !b.installer.None(l) {
			add(&r.Features, executor.FeaturePackages)
		}
		c.Languages = append(c.Languages, r)
	}
	if len(c.Languages) > 1 {
		add(&c.Features, executor.FeatureMixedLanguages)
	}
	return c
}

// Close implements driver.Driver.
func (b *backend) Close() error {
	if c, ok := b.t.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Create implements driver.Driver.
func (b *backend) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	for attempt := 0; ; attempt++ {
		s, again, err := b.obtain(ctx, b.ask(c, attempt))
		switch {
		case err == nil:
			return s, nil
		case !again || attempt+1 >= b.o.Attempts:
			return nil, err
		}
		b.env.Logger().Info("a sandbox was given up while it was set up, and another one is made", "error", err)
	}
}

// ask returns what a Transport is asked for.
func (b *backend) ask(c *driver.Create, attempt int) *Start {
	now := time.Now().Round(0)
	return &Start{
		Create: c, Command: command(b.o.Python), Config: b.config(c), Attempt: attempt,
		Info: executor.SessionInfo{
			Handle: executor.Handle{Session: c.ID, Created: now}, State: executor.SessionRunning,
			Created: now, Template: c.Spec.Template, Labels: maps.Clone(c.Labels),
		},
	}
}

// obtain makes a sandbox and sets it up. If that fails, again says that nothing is left of it and
// that another one may do better.
func (b *backend) obtain(ctx context.Context, st *Start) (s *session, again bool, err error) {
	box, conn, err := b.t.Start(ctx, st)
	if err == nil {
		if s, err = b.setUp(ctx, st, box, conn); err == nil {
			return s, false, nil
		}
	} else if box != nil {
		err = b.notSetUp(ctx, box, err) // what broke off at once may have a reason that the provider knows
	}
	again = ctx.Err() == nil && errors.As(err, new(*LostError))
	err = classified(ctx, err)
	if box == nil {
		return nil, false, err
	}
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.o.CleanupTimeout/2)
	defer cancel()
	if rerr := box.Remove(rctx); rerr != nil {
		b.env.Logger().Warn("a sandbox may be left, and is removed when the provider answers", "session", st.ID, "error", rerr)
		return nil, false, driver.Leftover(err, box.Remove)
	}
	return nil, again, err
}

// config is what a runner is set up with, unless the Transport changes it.
func (b *backend) config(c *driver.Create) Config {
	uid := userID(c.ID)
	cfg := Config{
		UID: uid, GID: uid, Aliases: c.Spec.Aliases, Ports: c.Spec.Ports, Env: c.Spec.Env, Languages: c.Spec.Languages,
		MaxRun: c.Spec.MaxRun, IdleTTL: c.Spec.IdleTTL, MaxLife: c.Spec.MaxLife,
		Rlimits: map[string]int64{"core": 0, "nofile": 4096}, OOMScore: 1000, socket: b.socket(c.ID),
	}
	if n := c.Spec.Limits.Processes; n > 0 {
		cfg.Rlimits["nproc"] = int64(n)
	}
	if !b.installer.None(executor.Python) {
		cfg.addPackages()
	}
	return cfg
}

// userID returns the uid of user code in a sandbox. The kernel counts some things for each uid on
// the whole machine, processes for example, so no two sandboxes share one.
func userID(id string) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return 1<<20 + int(h.Sum32()>>1)
}

// socket returns where a bridge finds the runner of a session.
func (b *backend) socket(session string) string {
	return cmp.Or(b.o.Socket, "@execbroker-"+session)
}

// errNoAnswer is the cause of a context that has waited for a runner.
var errNoAnswer = errors.New("the runner does not answer")

// answer bounds the wait for a runner.
func (b *backend) answer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, b.o.AnswerTimeout, fmt.Errorf("%w within %v", errNoAnswer, b.o.AnswerTimeout))
}

// setUp sets up the runner of a new sandbox.
func (b *backend) setUp(ctx context.Context, st *Start, box Sandbox, conn io.ReadWriteCloser) (*session, error) {
	actx, cancel := b.answer(ctx)
	defer cancel()
	if len(st.Preinstall[executor.Python]) > 0 {
		st.Config.addPackages()
	}
	b.compilations.use(box, &st.Config)
	c, err := setUp(actx, conn, st.Config)
	if err != nil {
		b.compilations.learn(box, nil)
		return nil, b.notSetUp(ctx, box, err)
	}
	if st.Config.compile {
		b.compilations.learn(box, c.Info().Compiled)
		st.Config.compile = false
	}
	for _, l := range st.Config.Languages {
		if !slices.Contains(c.Info().Languages, l) {
			c.Detach()
			return nil, unsupported(fmt.Errorf("the sandbox has no interpreter of %s", l), "language:"+string(l))
		}
	}
	if d := c.Info().Degraded; len(d) > 0 {
		b.env.Logger().Warn("what sandboxes are made from weakens them", "template", st.Spec.Template, "how", d)
	}
	s := b.session(st.Info, box, c, 0)
	s.made, s.begun = &st.Config, time.Now()
	err = s.preinstall(ctx, st.Preinstall)
	if err == nil && st.Base == "" {
		err = s.shorten(ctx, &st.Spec)
	}
	if err != nil {
		s.Detach()
		return nil, err
	}
	return s, nil
}

// notSetUp finds out why a runner has not come up.
func (b *backend) notSetUp(ctx context.Context, box Sandbox, err error) error {
	if !errors.As(err, new(*LostError)) || ctx.Err() != nil {
		return explained(ctx, box, err)
	}
	end, terr := box.Termination(ctx)
	switch {
	case terr != nil:
		return terr
	case end.Reason == executor.ReasonMemory:
		return driver.Fail(executor.ErrExhausted, executor.RanNo, errors.New("the memory of the sandbox did not suffice for its interpreter"))
	case end.Ended && end.Code != 0:
		// It has ended by itself: too old, broken, or something else by that name.
		return unsupported(fmt.Errorf("%s of the sandbox cannot run the supervisor (exit code %d): %s", b.o.Python, end.Code, end.Stderr), b.o.Python+">=3.9")
	case end.Ended:
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("the sandbox ended while it was being set up"))
	}
	return explained(ctx, box, err)
}

// connect opens a further connection to a runner. again is what the sandbox was made with, if
// nothing has used it yet: a runner that has lost its set-up gets it once more.
func (b *backend) connect(ctx context.Context, box Sandbox, session string, fence int64, again *Config) (*client, error) {
	actx, cancel := b.answer(ctx)
	defer cancel()
	conn, err := box.Connect(actx, bridgeCommand(b.o.Python, b.socket(session)))
	if err == nil {
		var c *client
		if again != nil {
			c, err = setUp(actx, conn, *again)
		} else {
			c, err = join(actx, conn, fence)
		}
		if err == nil {
			return c, nil
		}
	}
	return nil, b.unreachable(ctx, box, err)
}

// unreachable returns why a runner was not reached by a further connection.
func (b *backend) unreachable(ctx context.Context, box Sandbox, err error) error {
	if ctx.Err() == nil && (errors.As(err, new(*LostError)) || errors.Is(err, ErrUnprepared)) {
		if end, terr := box.Termination(ctx); terr == nil && end.Ended {
			return driver.Fail(executor.ErrNotFound, executor.RanNo, errGone)
		}
	}
	return classified(ctx, explained(ctx, box, err))
}

// explained returns an error in the words of the provider.
func explained(ctx context.Context, box Sandbox, err error) error {
	if e, ok := box.(Explainer); ok && ctx.Err() == nil {
		return e.Explain(ctx, err)
	}
	return err
}

// classified returns an error of a Transport as one of the contract. The end of ctx comes first,
// with what the error says about it.
func classified(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause != nil && !errors.Is(err, cause):
		return cause
	case cause != nil, errors.As(err, new(*executor.Error)):
		return err
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
}

// unsupported refuses what a sandbox turns out to lack.
func unsupported(cause error, missing ...string) error {
	return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing, Err: cause}
}

// finder is a backend whose sandboxes can be found again.
type finder struct {
	*backend
	f Finder
}

var (
	_ driver.Attacher = (*finder)(nil)
	_ driver.Observer = (*finder)(nil)
)

// Lookup implements driver.Attacher.
func (f *finder) Lookup(ctx context.Context, h executor.Handle) (executor.SessionInfo, error) {
	_, info, err := f.find(ctx, h)
	return info, err
}

func (f *finder) find(ctx context.Context, h executor.Handle) (Sandbox, executor.SessionInfo, error) {
	box, info, err := f.f.Find(ctx, h)
	if err != nil {
		err = classified(ctx, err)
	}
	return box, info, err
}

// Attach implements driver.Attacher.
func (f *finder) Attach(ctx context.Context, h executor.Handle) (driver.Session, error) {
	box, info, err := f.find(ctx, h)
	if err == nil && info.Labels[labelFetches] != "" {
		err = driver.Fail(executor.ErrNotFound, executor.RanNo, errors.New("the sandbox fetches packages: it is nobody's session"))
	}
	if err != nil {
		return nil, err
	}
	c, err := f.connect(ctx, box, h.Session, h.Fence, nil)
	if err != nil {
		return nil, err
	}
	return f.session(info, box, c, h.Fence), nil
}

// Destroy implements driver.Attacher.
func (f *finder) Destroy(ctx context.Context, h executor.Handle) error {
	box, _, err := f.find(ctx, h)
	if errors.Is(err, executor.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.remove(ctx, box)
}

// remove destroys a sandbox.
func (b *backend) remove(ctx context.Context, box Sandbox) error {
	if err := box.Remove(ctx); err != nil {
		return classified(ctx, err)
	}
	return nil
}
