package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/execbroker/execbroker/runner"
)

const (
	// python runs the runner and the Python of sessions. The template says where it is.
	python = "python3"
	// socket is where further holders find the runner: an abstract name, since a file would need a
	// directory that only the supervisor can reach. Code can connect to it and is sent away by its
	// uid.
	socket = "@execbroker-e2b"
	// codeID is uid and gid of code, unless the template has a working directory that belongs to
	// another user than root. No template uses it, so that limits per user count code only.
	codeID = 30000
	// spareProcesses is what a limit is rounded up by, since other processes of the template may
	// count.
	spareProcesses = 16
)

// sandboxes is how many may be made for one session. E2B's proxy breaks some connections on a
// loaded machine, while none of the user's code has run.
const sandboxes = 3

// Start implements runner.Transport.
func (b *backend) Start(ctx context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	// The service counts from the beginning, and setting up is use.
	ttl := min(max(b.idle(&s.Spec), b.cfg.timeout()), b.cfg.maxLife())
	ask := api.NewSandbox{TemplateID: b.cfg.template(s.Spec.Template)}
	if s.Base != "" { // which ends by itself soon after it should have
		ask.TemplateID, ttl = strings.TrimPrefix(s.Base, b.cfg.apiURL()+" "), min(s.Spec.MaxLife, b.cfg.maxLife())
	}
	s.Info.Limits = s.Spec.Limits
	if s.Info.Limits.Processes > 0 {
		s.Info.Limits.Processes += spareProcesses
	}
	labels := maps.Clone(s.Labels)
	s.Info.Labels = nil // they are metadata of their own
	labels[labelNote] = s.Note()
	s.Info.Labels = labels
	ask.Metadata = &labels
	b.network(&ask, s.Spec.Network)
	seconds := wholeSeconds(ttl)
	ask.Timeout = &seconds

	key := s.ID
	if s.Attempt > 0 {
		key += "n" + strconv.Itoa(s.Attempt) // the service would answer with the sandbox that was given up
	}
	asked := time.Now()
	made, unclear, err := b.make(ctx, s.ID, key, ask)
	if unclear != nil {
		return &sandbox{b: b, unclear: unclear}, nil, err
	}
	if err != nil {
		return nil, nil, err
	}
	s.Info.Handle.Session, s.Info.Expires = made.SandboxID, asked.Add(time.Duration(seconds)*time.Second)
	box := &sandbox{b: b, id: made.SandboxID, created: s.Info.Created, api: made, d: b.service.daemon(made)}
	if box.main, err = b.begin(ctx, box, s); err != nil {
		return box, nil, err
	}
	return box, box.main, nil
}

// begin starts the runner in a sandbox, and says how it is set up.
func (b *backend) begin(ctx context.Context, box *sandbox, s *runner.Start) (*process, error) {
	if err := b.refuse(box.api); err != nil {
		return nil, err
	}
	ctx, cancel := b.service.answer(ctx)
	defer cancel()
	c := &s.Config
	c.UID, c.GID, c.SameUser = codeID, codeID, b.cfg.user() != DefaultUser
	if b.cfg.kernel() == KernelCodeInterpreter {
		uid, gid, err := b.owner(ctx, box.api)
		if err != nil {
			return nil, err
		}
		c.UID, c.GID, c.SameUser = rights(uid, gid, b.cfg.user())
	}
	c.OwnWorkdir, c.IdleTTL, c.AllowWeak = !c.SameUser, 0, b.cfg.AllowWeak // E2B's timeout is the idle TTL
	c.CodeFilters = true                                                   // the kernel is that of the sandbox
	if s.Info.Limits.Processes > 0 {
		c.Rlimits["nproc"] = int64(s.Info.Limits.Processes)
	}
	p, err := box.d.startNew(ctx, s.Command)
	switch {
	case err == nil:
		return p, nil
	case connect.CodeOf(err) == connect.CodeUnauthenticated:
		return nil, unsupported(fmt.Errorf("the daemon of the sandbox refuses: %w; set user to one that the template has", err), "user:"+b.cfg.user())
	}
	return nil, b.explain(ctx, "starting the supervisor", err)
}

// explain classifies an error of a connection to a sandbox. One that has broken is a
// *runner.LostError: another sandbox may do better.
func (b *backend) explain(ctx context.Context, what string, err error) error {
	failure := b.service.fail(ctx, what, err)
	if !broke(failure) {
		return failure
	}
	return driver.Fail(executor.ErrUnavailable, executor.RanNo, fmt.Errorf("%s: %w", what, &runner.LostError{Err: err}))
}

// idle returns how long a sandbox lives that nobody uses.
func (b *backend) idle(spec *executor.Spec) time.Duration {
	idle := min(spec.IdleTTL, b.cfg.maxLife())
	if spec.MaxLife > 0 {
		idle = min(idle, spec.MaxLife)
	}
	return idle
}

// wholeSeconds rounds up: the service counts in seconds, and less than asked for would end runs
// that have their permission.
func wholeSeconds(d time.Duration) int64 {
	return max(1, int64(math.Ceil(d.Seconds())))
}

// network says what a sandbox may reach. Nobody reaches what listens in it: knowing its ID would be
// enough to run code there.
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

// attempt is one request for a sandbox. It goes on when its caller has left, because the service
// does too: only its answer tells what there is to remove.
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

// sweep kills the sandboxes of a session that nobody knows the IDs of, and waits for them to appear
// until then.
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

// make asks for a sandbox until there is one. Only what has certainly made none is asked for again.
// If an error leaves open whether there is one, the function that comes with it removes that. key
// is the first of the idempotency keys.
func (b *backend) make(ctx context.Context, id, key string, ask api.NewSandbox) (*api.Sandbox, func(context.Context) error, error) {
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

// repeatable reports whether a request for a sandbox that made none may be repeated, and whether it
// is then the same request.
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

// rights returns whose rights files and commands have beside kernels of a user: those of the
// kernels, to whom files belong that nobody else may read. In E2B's template that is root. The
// supervisor gives nobody the rights of root, so same says that it keeps its own; code of root
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
