package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/e2b/internal/api"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
	"github.com/execbroker/execbroker/runner"
)

const (
	// python runs the runner and the Python of sessions. The template says where it is.
	python = "python3"
	// socket is where further holders find the runner: an abstract name, since a file would need a directory that only the supervisor can
	// reach. Code can connect to it and is sent away by its uid.
	socket = "@execbroker-e2b"
	// codeID is uid and gid of code, unless the template has a working directory that belongs to another user than root. No template
	// uses it, so that limits per user count code only.
	codeID = 30000
	// codeOOMScore makes the kernel choose code and not the supervisor when the machine runs out of memory.
	codeOOMScore = 1000
	// spareProcesses is what a limit is rounded up by, since other processes of the template may count.
	spareProcesses = 16
	// maxDescriptors is what a process of code may have open.
	maxDescriptors = 4096
)

// Create implements driver.Driver.
func (b *backend) Create(ctx context.Context, c *driver.Create) (driver.Session, error) {
	limits := c.Spec.Limits
	if limits.Processes > 0 {
		limits.Processes += spareProcesses
	}
	note, err := json.Marshal(remembered{Created: time.Now().Round(0), Template: c.Spec.Template, Limits: limits})
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(c.Labels)
	labels[labelNote] = string(note)
	// The service counts from the beginning, and setting up is use.
	ttl := min(max(b.idle(&c.Spec), b.cfg.timeout()), b.cfg.maxLife())
	ask := api.NewSandbox{TemplateID: b.cfg.template(c.Spec.Template), Metadata: &labels}
	b.network(&ask, c.Spec.Network)
	seconds := wholeSeconds(ttl)
	ask.Timeout = &seconds

	// A sandbox whose connections break while it is set up is given up for another one: none of the user's code has run. E2B's proxy breaks
	// some on a loaded machine.
	for try := 0; ; try++ {
		s, again, err := b.open(ctx, c, ask, labels, limits, try)
		if err == nil || !again || try+1 == sandboxes || !pause(ctx, try, err) {
			return s, err
		}
		b.env.Logger().Info("a sandbox was given up while it was set up, and another one is made", "error", err)
	}
}

// sandboxes is how many may be made for one session.
const sandboxes = 3

// open makes a sandbox and sets it up. If it fails, again says that another sandbox may do better, and that nothing is left of this one.
func (b *backend) open(ctx context.Context, c *driver.Create, ask api.NewSandbox, labels map[string]string, limits executor.Limits, try int) (opened driver.Session, again bool, err error) {
	key := c.ID
	if try > 0 {
		key += "n" + strconv.Itoa(try) // the service would answer with the sandbox that was given up
	}
	idle, seconds := b.idle(&c.Spec), *ask.Timeout
	asked := time.Now()
	made, err := b.make(ctx, c.ID, key, ask)
	if err != nil {
		return nil, false, err
	}
	s, err := b.start(ctx, made, &c.Spec, labels, limits, asked.Add(time.Duration(seconds)*time.Second))
	opened = s
	if err == nil && b.cfg.kernel() == KernelCodeInterpreter {
		n := b.notebook(s, made)
		if err = n.open(ctx, &c.Spec); err != nil {
			s.Connected().Detach()
		}
		opened = n
	}
	if err == nil && wholeSeconds(idle) < seconds {
		if s.info.Expires, err = s.KeepAlive(ctx, idle); err != nil {
			s.Connected().Detach()
		}
	}
	if err != nil {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.timeout())
		defer cancel()
		if kerr := b.service.kill(kctx, made.SandboxID); kerr != nil {
			b.env.Logger().Warn("a sandbox may be left, and is removed when the service answers", "sandbox", made.SandboxID, "error", kerr)
			return nil, false, driver.Leftover(err, func(ctx context.Context) error { return b.service.kill(ctx, made.SandboxID) })
		}
		return nil, ctx.Err() == nil && broke(err), err
	}
	return opened, false, nil
}

// idle returns how long a sandbox lives that nobody uses.
func (b *backend) idle(spec *executor.Spec) time.Duration {
	idle := min(spec.IdleTTL, b.cfg.maxLife())
	if spec.MaxLife > 0 {
		idle = min(idle, spec.MaxLife)
	}
	return idle
}

// wholeSeconds rounds up: the service counts in seconds, and less than asked for would end runs that have their permission.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// network says what a sandbox may reach. Nobody reaches what listens in it: knowing its ID would be enough to run code there.
func (b *backend) network(ask *api.NewSandbox, p executor.NetworkPolicy) {
	internet, public := p.Mode != executor.NetworkNone, b.cfg.PublicTraffic
	ask.Network = &api.Network{AllowPublicTraffic: &public}
	if p.Mode == executor.NetworkAllowlist {
		hosts, everything := slices.Clone(p.Hosts), []string{"0.0.0.0/0"}
		ask.Network.AllowOut, ask.Network.DenyOut = &hosts, &everything // what is allowed comes first
		return
	}
	ask.AllowInternetAccess = &internet
}

// attempt is one request for a sandbox. It goes on when its caller has left, because the service does too: only its answer tells what
// there is to remove.
type attempt struct {
	b    *backend
	id   string // of the session
	done chan struct{}

	made    *api.Sandbox // set before done is closed
	err     error
	settled time.Time // when what has no answer must have come to be
}

// settleTime is how long after a request without an answer a sandbox may still appear.
const settleTime = 15 * time.Second

func (b *backend) attempt(ctx context.Context, id string, ask api.NewSandbox, key string) *attempt {
	a := &attempt{b: b, id: id, done: make(chan struct{})}
	b.work.Go(func() {
		defer close(a.done)
		a.made, a.err = b.service.create(context.WithoutCancel(ctx), ask, key)
		a.settled = time.Now()
		var said *ServiceError
		if !errors.As(a.err, &said) || !said.shape || said.Status == http.StatusGatewayTimeout {
			a.settled = a.settled.Add(settleTime)
		}
	})
	return a
}

// unclear reports whether a failed request may have made a sandbox.
func unclear(err error) bool {
	var said *ServiceError
	if !errors.As(err, &said) {
		return err != nil && !unsent(err)
	}
	return said.Status >= 500 && said.Status != http.StatusServiceUnavailable && said.Status != http.StatusNotImplemented ||
		said.Code == "idempotency_outcome_unknown"
}

// remove removes what came of the request.
func (a *attempt) remove(ctx context.Context) error {
	select {
	case <-a.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case a.made != nil:
		return a.b.service.kill(ctx, a.made.SandboxID)
	case !unclear(a.err):
		return nil
	}
	return a.b.sweep(ctx, a.id, a.settled)
}

// sweep kills the sandboxes of a session that nobody knows the IDs of, and waits for them to appear until then.
func (b *backend) sweep(ctx context.Context, id string, then time.Time) error {
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		var left []string
		late := time.Now().After(then)
		err := b.service.all(ctx, map[string]string{driver.LabelID: id, driver.LabelOwner: b.env.Owner}, func(d api.SandboxDetail) bool {
			left = append(left, d.SandboxID)
			return true
		})
		for _, sandbox := range left {
			err = errors.Join(err, b.service.kill(ctx, sandbox))
		}
		if err != nil || late || len(left) > 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// make is tryMake for sessions.
func (b *backend) make(ctx context.Context, id, key string, ask api.NewSandbox) (*api.Sandbox, error) {
	made, unclear, err := b.tryMake(ctx, id, key, ask)
	if unclear != nil {
		err = driver.Leftover(err, unclear)
	}
	return made, err
}

// tryMake asks for a sandbox until there is one. Only what has certainly made none is asked for again. If an error leaves open whether there
// is one, the function that comes with it removes that. key is the first of the idempotency keys.
func (b *backend) tryMake(ctx context.Context, id, key string, ask api.NewSandbox) (*api.Sandbox, func(context.Context) error, error) {
	first := key
	for n := 0; ; n++ {
		a := b.attempt(ctx, id, ask, key)
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, a.remove, context.Cause(ctx)
		}
		if a.err == nil {
			return a.made, nil, nil
		}
		err := b.service.fail(ctx, "creating a sandbox", a.err)
		if errors.Is(a.err, errKey) {
			return nil, nil, driver.Fail(executor.ErrAuth, executor.RanNo, a.err)
		}
		if unclear(a.err) {
			return nil, a.remove, err
		}
		again, same := repeatable(a.err)
		if !again || n+1 == attempts || !pause(ctx, n, a.err) {
			return nil, nil, err
		}
		if !same {
			// The service repeats its answer to a key, also if that was an error.
			key = first + strconv.Itoa(n+1)
		}
	}
}

// repeatable reports whether a request for a sandbox that made none may be repeated, and whether it is then the same request.
func repeatable(err error) (again, same bool) {
	var said *ServiceError
	if !errors.As(err, &said) {
		return passing(err), true
	}
	if said.Code == "idempotency_in_progress" {
		return true, true
	}
	return passing(err), strings.Contains(said.Message, "Idempotency-Key")
}

// oldestDaemon is the first that asks for a token.
var oldestDaemon = [3]int{0, 2, 0}

var versionForm = regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})`)

// refuse returns an error if a sandbox is not as it was asked for.
func (b *backend) refuse(s *api.Sandbox) error {
	if m := versionForm.FindStringSubmatch(s.EnvdVersion); m != nil {
		var v [3]int
		for i := range v {
			v[i], _ = strconv.Atoi(m[i+1]) // digits
		}
		if slices.Compare(v[:], oldestDaemon[:]) < 0 {
			return unsupported(fmt.Errorf("the template has version %s of E2B's daemon, which takes commands from anybody; build it again", s.EnvdVersion), "envd>=0.2.0")
		}
	}
	switch {
	case s.EnvdAccessToken == nil || *s.EnvdAccessToken == "":
		return unsupported(errors.New("the service gives no token for its daemon, so that anybody could run code in the sandbox"), "secure sandboxes")
	case !b.cfg.PublicTraffic && (s.TrafficAccessToken == nil || *s.TrafficAccessToken == ""):
		return unsupported(errors.New("the service does not keep the ports of a sandbox from the public; set public_traffic if that is meant"), "network.allowPublicTraffic")
	}
	return nil
}

// unsupported refuses what this service or template lacks, though the configuration declares it.
func unsupported(cause error, missing ...string) error {
	return &executor.Error{Kind: executor.ErrUnsupported, Ran: executor.RanNo, Missing: missing, Err: cause}
}

// start sets up the runner in a sandbox.
func (b *backend) start(ctx context.Context, made *api.Sandbox, spec *executor.Spec, labels map[string]string, limits executor.Limits, ends time.Time) (*session, error) {
	if err := b.refuse(made); err != nil {
		return nil, err
	}
	ctx, cancel := b.service.answer(ctx)
	defer cancel()
	d := b.service.daemon(made)
	uid, gid, languages, maxRun := codeID, codeID, spec.Languages, spec.MaxRun
	same := b.cfg.user() != DefaultUser
	if b.cfg.kernel() == KernelCodeInterpreter {
		own, group, err := b.owner(ctx, made)
		if err != nil {
			return nil, err
		}
		uid, gid, same = rights(own, group, b.cfg.user())
		// What runs there are leases, which last longer than the code.
		languages, maxRun = []executor.Language{executor.Python}, executor.RunLimits{}
	}
	p, err := d.startNew(ctx, runner.Command(python))
	if err != nil {
		return nil, b.notStarted(ctx, err)
	}
	env, paths := spec.Env, map[executor.Language][]string(nil)
	if !b.installer.None(executor.Python) {
		env, paths = packages.Env(env), map[executor.Language][]string{executor.Python: {packages.Dirs[executor.Python]}}
	}
	cfg := runner.Config{
		UID: uid, GID: gid, OwnWorkdir: !same, SameUser: same,
		Aliases: spec.Aliases, Ports: spec.Ports, Env: env, Paths: paths, Languages: languages, MaxRun: maxRun, MaxLife: spec.MaxLife, // E2B's timeout is the idle TTL
		Rlimits: map[string]int64{"core": 0, "nofile": maxDescriptors}, OOMScore: codeOOMScore, AllowWeak: b.cfg.AllowWeak,
	}
	if limits.Processes > 0 {
		cfg.Rlimits["nproc"] = int64(limits.Processes)
	}
	r, err := runner.SetUp(ctx, p, cfg.At(socket))
	if err != nil {
		return nil, b.died(ctx, p, err)
	}
	for _, l := range languages {
		if !slices.Contains(r.Info().Languages, l) {
			r.Detach()
			return nil, unsupported(fmt.Errorf("the template %s has no interpreter of %s", made.TemplateID, l), "language:"+string(l))
		}
	}
	if d := r.Info().Degraded; len(d) > 0 {
		b.env.Logger().Warn("the template weakens sandboxes", "template", made.TemplateID, "how", d)
	}
	info, err := sessionInfo(made.SandboxID, api.Running, labels)
	if err != nil {
		r.Detach()
		return nil, err
	}
	info.Expires = ends
	return b.session(info, d, r, p, 0), nil
}

// rights returns whose rights files and commands have beside kernels of a user: those of the kernels, to whom files belong that nobody else
// may read. In E2B's template that is root. The supervisor gives nobody the rights of root, so same says that it keeps its own; code of root
// could do to it what it wants in any case.
func rights(kernelUID, kernelGID int, user string) (uid, gid int, same bool) {
	return kernelUID, kernelGID, user != DefaultUser || kernelUID == 0
}

// startNew starts a process in a sandbox whose daemon may not listen yet.
func (d *daemon) startNew(ctx context.Context, command []string) (*process, error) {
	for n := 0; ; n++ {
		p, err := d.start(ctx, command, nil)
		if err == nil || !early(err) || !pause(ctx, min(n, 4), err) {
			return p, err
		}
	}
}

// notStarted says why the daemon did not start the runner.
func (b *backend) notStarted(ctx context.Context, err error) error {
	if connect.CodeOf(err) == connect.CodeUnauthenticated {
		return unsupported(fmt.Errorf("the daemon of the sandbox refuses: %w; set user to one that the template has", err), "user:"+b.cfg.user())
	}
	return b.service.fail(ctx, "starting the supervisor", err)
}

// died finds out why a runner did not come up.
func (b *backend) died(ctx context.Context, p *process, err error) error {
	var lost *runner.LostError
	if !errors.As(err, &lost) {
		return err
	}
	switch end := p.ended.Load(); {
	case end != nil && end.GetExitCode() > 0:
		return unsupported(fmt.Errorf("the %s of the template cannot run the supervisor (exit code %d): %s", python, end.GetExitCode(), p.said()), python+">=3.9")
	case end != nil:
		return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("the supervisor ended while it was being set up: %s", end.GetStatus()))
	}
	return b.service.fail(ctx, "starting the supervisor", lost.Err)
}
