package modal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/handover"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// sandbox is the Sandbox of a session.
type sandbox struct {
	b     *backend
	name  string // empty in a process that has attached
	image string // as the configuration names it
	id    string // of Modal; empty: nobody knows whether there is one

	mu   sync.Mutex
	main *stream // of the runner; nil in a process that has attached
}

var (
	_ runner.Sandbox   = (*sandbox)(nil)
	_ runner.Base      = (*sandbox)(nil)
	_ runner.Observer  = (*sandbox)(nil)
	_ runner.Explainer = (*sandbox)(nil)
	_ driver.Aser      = (*sandbox)(nil)
)

// state is Handle.State: which Sandbox to ask for. What it is, its tags say.
type state struct {
	Sandbox string `json:"s"`
}

// prelude gives directories to the user of the code, before the runner gives up the right to.
const prelude = `import os, sys
uid = int(sys.argv.pop(1))
os.makedirs("/workspace", exist_ok=True)
os.chown("/workspace", uid, uid)
for path in "/tmp", "/dev/shm":
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o1777)
os.makedirs("/run/nscd", exist_ok=True)
os.chmod("/run/nscd", 0o755)
`

// names is where C libraries ask for names of users before they look into files.
const names = "/run/nscd/socket" // in a directory of the prelude

// Start implements runner.Transport.
func (b *backend) Start(ctx context.Context, s *runner.Start) (runner.Sandbox, io.ReadWriteCloser, error) {
	template := b.cfg.Templates[s.Spec.Template]
	x := &sandbox{b: b, name: sandboxName(s.ID, s.Attempt), image: cmp.Or(s.Base, b.cfg.image(s.Spec.Template))}
	s.Info.Limits = b.cfg.limits(&s.Spec)
	p := &sdk.SandboxCreateParams{
		Name: x.name, Workdir: "/", Runtime: sdk.SandboxRuntime(cmp.Or(b.cfg.Runtime, GVisor)),
		GPU: template.GPU, Regions: b.cfg.Regions, Cloud: b.cfg.Cloud, BlockNetwork: s.Spec.Network.Mode == executor.NetworkNone,
		Timeout: lifetime(s.Spec.MaxLife, b.cfg.timeout()),
		Command: handover.PreludeCommand(python, prelude, []string{strconv.Itoa(s.Config.UID)}, b.cfg.timeout()+time.Minute, s.Command),
	}
	b.cfg.size(s.Info.Limits, p)
	s.Info.Limits.MemoryBytes, s.Info.Limits.CPUs = int64(p.MemoryLimitMiB)*mib, p.CPULimit // of the Sandbox as a whole
	if b.cfg.isolation() == executor.IsolationGVisor {
		delete(s.Config.Rlimits, "nproc")
	} else {
		s.Config.Rlimits["nproc"] = int64(s.Info.Limits.Processes)
	}
	if s.Base == "" {
		s.Preinstall = template.Packages
	}
	s.Config.AllowWeak, s.Config.Names = b.cfg.AllowWeak, names
	s.Config.CodeFilters = true // the kernel is that of the Sandbox
	var err error
	if p.Tags, err = tags(s); err != nil {
		return nil, nil, err
	}
	sb, made, err := x.create(ctx, p)
	switch {
	case err != nil && made && x.id == "" && ctx.Err() != nil:
		// To look for it by its name takes longer than the caller, whose time is over, should wait.
		return nil, nil, driver.Leftover(err, x.Remove)
	case err != nil && made:
		return x, nil, err
	case err != nil:
		return nil, nil, err
	}
	if s.Info.Handle.State, err = json.Marshal(state{x.id}); err != nil {
		return x, nil, err
	}
	main, err := x.exec(ctx, sb, handover.OpenerCommand(python))
	if err != nil {
		return x, nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.main = main
	return x, main, nil
}

// sandboxName is the name of the Sandbox of a session, which is unique in the app: by it a Sandbox
// is found whose ID was lost.
func sandboxName(id string, attempt int) string { return fmt.Sprintf("execbroker-%s-%d", id, attempt) }

// lifetime returns when Modal ends a Sandbox, unless its runner has done so before.
func lifetime(life, timeout time.Duration) time.Duration {
	d := life + timeout + lifeMargin
	if life <= 0 || d > maxLife {
		return maxLife
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// create makes the Sandbox, and returns it for the first process in it. It reports whether there
// may be one.
func (x *sandbox) create(ctx context.Context, p *sdk.SandboxCreateParams) (sb *sdk.Sandbox, made bool, err error) {
	for n := 1; ; n++ {
		app, err := x.b.theApp(ctx, true)
		if err != nil {
			return nil, made, err
		}
		image, err := x.b.build(ctx, app, x.image)
		if err != nil {
			return nil, made, err
		}
		cctx, c := watched(ctx)
		sb, err = x.b.sdk.Sandboxes.Create(cctx, app, image, p)
		var lost *lostError
		switch {
		case c.made != "":
			x.id = c.made
			if err != nil { // it was not scheduled
				err = fail(ctx, "Sandbox "+c.made+" has no machine yet", err)
			}
			return sb, true, err
		case ctx.Err() != nil:
			return nil, true, fail(ctx, "Sandbox "+x.name, err)
		case errors.As(err, &lost), errors.As(err, new(sdk.AlreadyExistsError)):
			made = true
			if sb, err = x.b.named(ctx, x.name); err == nil {
				x.id = sb.SandboxID
				return sb, true, nil
			}
			if lost == nil || !missing(err) {
				return nil, true, fail(ctx, "Sandbox "+x.name, err)
			}
			if n == asks {
				return nil, true, fail(ctx, "Sandbox "+x.name, lost.err)
			}
		case n < asks && outdated(err): // somebody may have stopped the app or deleted the image
			x.b.forget(app, x.image)
		default:
			return nil, made, notThere(fail(ctx, "Sandbox "+x.name+" of image "+x.image, err))
		}
	}
}

// asks is how often a Sandbox is asked for: once more if the answer was lost and it is not found by
// its name, or if its app or image may not be there any more. If the first one appears after all,
// Modal refuses a second one of the same name.
const asks = 2

// outdated reports whether an app or image that was there may be what Modal refuses.
func outdated(err error) bool {
	switch status.Code(err) {
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument:
		return true
	}
	return false
}

// forget lets the app and an image be asked for anew.
func (b *backend) forget(app *sdk.App, image string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.app == app { // nobody has asked for another one meanwhile
		b.app = nil
	}
	delete(b.images, image)
}

// theApp returns the app. It is made if makes says so and it is not there.
func (b *backend) theApp(ctx context.Context, makes bool) (*sdk.App, error) {
	b.mu.Lock()
	app := b.app
	b.mu.Unlock()
	if app != nil {
		return app, nil
	}
	app, err := b.sdk.Apps.FromName(ctx, b.cfg.App, &sdk.AppFromNameParams{CreateIfMissing: makes})
	if err != nil {
		return nil, fail(ctx, "app "+b.cfg.App, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.app = app
	return app, nil
}

// How often a build whose stream breaks is joined again.
const (
	joins     = 10
	joinPause = 500 * time.Millisecond
)

// build returns an image of Modal, which is built if it is used for the first time. Asking for the
// same one again joins its build.
func (b *backend) build(ctx context.Context, app *sdk.App, name string) (*sdk.Image, error) {
	b.mu.Lock()
	image := b.images[name]
	b.mu.Unlock()
	if image != nil {
		return image, nil
	}
	for n := 0; ; n++ {
		var err error
		if imageID.MatchString(name) {
			image, err = b.sdk.Images.FromID(ctx, name, nil)
		} else {
			image, err = b.sdk.Images.FromRegistry(name, nil).Build(ctx, app, nil)
		}
		if err == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.images[name] = image
			return image, nil
		}
		failed := notThere(fail(ctx, "image "+name, err))
		if ctx.Err() != nil || n == joins || !errors.Is(failed, executor.ErrUnavailable) || errors.As(err, new(sdk.RemoteError)) {
			return nil, failed
		}
		if err := remote.Pause(ctx, joinPause); err != nil {
			return nil, err
		}
	}
}

// How long a Sandbox may not be known by its name, after it was asked for.
const (
	lookFor   = 5 * time.Second
	lookPause = 250 * time.Millisecond
)

// named returns the Sandbox that has a name.
func (b *backend) named(ctx context.Context, name string) (*sdk.Sandbox, error) {
	for begun := time.Now(); ; {
		sb, err := b.sdk.Sandboxes.FromName(ctx, b.cfg.App, name, nil)
		if err == nil || !missing(err) || time.Since(begun) > lookFor {
			return sb, err
		}
		if err := remote.Pause(ctx, lookPause); err != nil {
			return nil, err
		}
	}
}

// handle returns the Sandbox as the SDK has it. Each connection has one of its own.
func (x *sandbox) handle(ctx context.Context) *sdk.Sandbox {
	sb, _ := x.b.sdk.Sandboxes.FromID(ctx, x.id, nil) // it asks nobody
	return sb
}

// exec starts a process in the Sandbox that says when it is there.
func (x *sandbox) exec(ctx context.Context, sb *sdk.Sandbox, command []string) (*stream, error) {
	patience := x.b.cfg.maxThrottleWait()
	p, err := throttled(ctx, patience, func() (*sdk.ContainerProcess, error) {
		return sb.Exec(ctx, command, &sdk.SandboxExecParams{Workdir: "/"})
	})
	if err != nil {
		_ = sb.Detach() // it never fails
		return nil, x.broken(ctx, err)
	}
	s := newStream(sb, p, patience, &x.b.sending)
	if err := handover.Await(ctx, s); err != nil {
		s.Close()
		if said := s.stderr(); said != "" {
			err = fmt.Errorf("%w: %s", ended(err), said)
		}
		return nil, x.broken(ctx, ended(err))
	}
	return s, nil
}

// broken is the error about a process that does not start. The Sandbox may have ended.
func (x *sandbox) broken(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("Sandbox %s: %w", x.id, cause)
	}
	return &runner.LostError{Err: err}
}

// As implements driver.Aser.
func (x *sandbox) As(target any) bool {
	p, ok := target.(**sdk.Sandbox)
	if ok {
		*p = x.handle(context.Background()) // it asks nobody
	}
	return ok
}

// Base implements runner.Base.
func (x *sandbox) Base() string { return x.image }

// Connect implements runner.Sandbox, through a process of root in the Sandbox.
func (x *sandbox) Connect(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	s, err := x.exec(ctx, x.handle(ctx), handover.AnnouncedCommand(python, command))
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Observe implements runner.Observer.
func (x *sandbox) Observe(ctx context.Context, command []string) (io.ReadWriteCloser, error) {
	return x.Connect(ctx, command)
}

// Explain implements runner.Explainer: of a Sandbox that lives, the error is that of the SDK.
func (x *sandbox) Explain(ctx context.Context, err error) error {
	var lost *runner.LostError
	if errors.As(err, &lost) && len(lost.Said) == 0 {
		return fail(ctx, "Sandbox "+x.id, lost.Err)
	}
	return err
}

// endWithin is how long Modal may take to say that a Sandbox has ended in which no process can be
// started.
const endWithin = 5 * time.Second

// Termination implements runner.Sandbox. A connection ends earlier than Modal says that the Sandbox
// has. So a further process is started: if it can be, the Sandbox lives.
func (x *sandbox) Termination(ctx context.Context) (runner.Termination, error) {
	if x.id == "" {
		return runner.Termination{}, nil
	}
	r, gone, err := x.result(ctx, false)
	if err == nil && r == nil && !gone && !x.alive(ctx) {
		wctx, cancel := context.WithTimeout(ctx, endWithin)
		defer cancel()
		if r, gone, err = x.result(wctx, true); err != nil && wctx.Err() != nil && ctx.Err() == nil {
			err = nil // its machine does not answer, and may do so again
		}
	}
	if err != nil {
		return runner.Termination{}, fail(ctx, "Sandbox "+x.id, err)
	}
	if gone {
		return runner.Termination{Ended: true, Reason: executor.ReasonLifetime}, nil
	}
	if r == nil {
		return runner.Termination{}, nil
	}
	end := terminationOf(r)
	if end.Code != 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.main != nil {
			end.Stderr = x.main.stderr()
		}
		end.Stderr = cmp.Or(end.Stderr, remote.Words(r.GetException(), maxWords), "it said nothing")
	}
	return end, nil
}

// alive reports whether a process can be started in the Sandbox. It has to say so: one that ends is
// not always refused a process.
func (x *sandbox) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	s, err := x.exec(ctx, x.handle(ctx), handover.AnnouncedCommand(python, handover.NothingCommand(python)))
	if err == nil {
		s.Close()
	}
	return err == nil
}

// result returns how the Sandbox has ended: nil if it has not, and gone if Modal does not know it.
// It waits for the end if wait says so.
func (x *sandbox) result(ctx context.Context, wait bool) (r *pb.GenericResult, gone bool, err error) {
	cctx, c := watched(ctx)
	if wait {
		_, err = x.handle(ctx).Wait(cctx, nil)
	} else {
		_, err = x.handle(ctx).Poll(cctx, nil)
	}
	if err != nil && missing(err) {
		return nil, true, nil
	}
	return c.result, false, err
}

// terminationOf translates how a Sandbox has ended.
func terminationOf(r *pb.GenericResult) runner.Termination {
	end := runner.Termination{Ended: true}
	switch r.GetStatus() {
	case pb.GenericResult_GENERIC_STATUS_SUCCESS, pb.GenericResult_GENERIC_STATUS_TERMINATED,
		pb.GenericResult_GENERIC_STATUS_TIMEOUT, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT:
		end.Reason = executor.ReasonLifetime // by the runner's clocks or Modal's, or by somebody
	case pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE, pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION:
		// Its machine has ended, or was needed for another: that says nothing about the code.
	default:
		end.Reason = executor.ReasonSandbox
		if code := int(r.GetExitcode()); code > 0 && code < 128 {
			end.Code = code
		}
	}
	return end
}

// Remove implements runner.Sandbox.
func (x *sandbox) Remove(ctx context.Context) error {
	id := x.id
	if id == "" {
		sb, err := x.b.named(ctx, x.name)
		switch {
		case err != nil && missing(err): // one that comes later ends by itself: nobody connects to it
			return nil
		case err != nil:
			return fail(ctx, "Sandbox "+x.name, err)
		}
		id = sb.SandboxID
	}
	sb, err := x.b.sdk.Sandboxes.FromID(ctx, id, nil)
	if err == nil {
		_, err = sb.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true})
	}
	if err != nil && !missing(err) {
		return fail(ctx, "Sandbox "+id, err)
	}
	return nil
}
