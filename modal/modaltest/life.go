package modaltest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
)

// sandbox is a Sandbox: a container with a main process, and processes that were started in it.
type sandbox struct {
	s         *Server
	id, task  string
	app, name string
	v2        bool
	created   float64 // in seconds, as Modal counts; no two are alike
	def       *pb.Sandbox
	container string
	ended     chan struct{} // closed when result is set

	tags map[string]string // by Server.mu

	mu     sync.Mutex
	result *pb.GenericResult
	why    pb.GenericResult_GenericStatus // it was killed; unspecified: it was not
	procs  map[string]*process            // by exec ID
	busy   int                            // processes that live
	idle   *time.Timer
}

// ending returns how the Sandbox has ended. Nil: it lives.
func (x *sandbox) ending() *pb.GenericResult {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result
}

func (x *sandbox) order() string { return fmt.Sprintf("%020.6f", x.created) }

// tagged reports whether the Sandbox has all tags. The caller holds Server.mu.
func (x *sandbox) tagged(want []*pb.SandboxTag) bool {
	for _, t := range want {
		if v, ok := x.tags[t.GetTagName()]; !ok || v != t.GetTagValue() {
			return false
		}
	}
	return true
}

// How many Sandboxes that have ended are remembered, and how many of these with what their
// processes wrote, which may be much.
const (
	maxDead  = 1000
	maxHeard = 20
)

// make makes a Sandbox. Who asked for it may have gone meanwhile: it is made nevertheless.
func (s *Server) make(app string, def *pb.Sandbox, list []*pb.SandboxTag, env []string, v2 bool) (*sandbox, error) {
	if err := check(def); err != nil {
		return nil, err
	}
	tags, err := tagMap(list)
	if err != nil {
		return nil, err
	}
	if !s.hasApp(app) {
		return nil, fail(codes.NotFound, "App '%s' not found", app)
	}
	im, err := s.reserve(app, def)
	if err != nil {
		return nil, err
	}
	x := &sandbox{
		s: s, id: "sb-" + newID(), task: "ta-" + newID(), app: app, name: def.GetName(), v2: v2, def: def, tags: tags,
		ended: make(chan struct{}), procs: map[string]*process{},
	}
	if v2 {
		x.id = "sb-" + newV2ID()
	}
	err = x.start(s.life, im, env)
	s.mu.Lock()
	s.making--
	delete(s.names, app+"/"+x.name)
	if err == nil {
		x.created = float64(time.Now().UnixMicro()) / 1e6
		for _, o := range s.sandboxes {
			x.created = max(x.created, o.created+1e-6)
		}
		s.sandboxes[x.id] = x
		s.counts["sandboxes"]++
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.cfg.Log.Info("made a sandbox", "sandbox", x.id, "name", x.name)
	s.work.Go(x.watch)
	return x, nil
}

// reserve takes a place and the name for a Sandbox that is to be made.
func (s *Server) reserve(app string, def *pb.Sandbox) (*image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	im := s.images[def.GetImageId()]
	if im == nil {
		return nil, fail(codes.NotFound, "Image '%s' not found", def.GetImageId())
	}
	living := s.making
	for _, x := range s.sandboxes {
		if x.ending() != nil {
			continue
		}
		living++
		if x.name != "" && x.name == def.GetName() && x.app == app {
			return nil, fail(codes.AlreadyExists, "Sandbox with name '%s' already exists in the App", x.name)
		}
	}
	key := app + "/" + def.GetName()
	switch {
	case def.GetName() != "" && s.names[key]:
		return nil, fail(codes.AlreadyExists, "Sandbox with name '%s' already exists in the App", def.GetName())
	case living >= s.cfg.MaxSandboxes:
		return nil, fail(codes.ResourceExhausted, "Sandbox limit of %d exceeded", s.cfg.MaxSandboxes)
	}
	s.making++
	s.names[key] = true
	return im, nil
}

// pids keeps a fork bomb in a Sandbox from taking the machine of the engine along.
const pids = 4096

// start makes the container and starts it.
func (x *sandbox) start(ctx context.Context, im *image, env []string) error {
	yes, most := true, int64(pids)
	r := x.def.GetResources()
	memory := int64(cmp.Or(r.GetMemoryMbMax(), r.GetMemoryMb())) << 20
	if r.GetMemoryMbMax() == 0 {
		memory = 0 // what was asked for is reserved, and no limit
	}
	args := x.def.GetEntrypointArgs()
	if len(args) == 0 {
		args = []string{"sleep", "172800"}
	}
	o := client.ContainerCreateOptions{
		Name: "modaltest-" + x.id,
		Config: &container.Config{
			Image: x.s.refOf(im.ref), Hostname: "modal", Env: env, Entrypoint: args, WorkingDir: x.def.GetWorkdir(), User: "0:0", OpenStdin: true,
			Labels: x.s.engine.Labels(x.id), Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: &container.HostConfig{
			Init:      &yes,
			LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
			Resources: container.Resources{NanoCPUs: int64(r.GetMilliCpuMax()) * 1e6, PidsLimit: &most, Memory: memory, MemorySwap: memory},
		},
	}
	if x.def.GetNetworkAccess().GetNetworkAccessType() == pb.NetworkAccess_BLOCKED {
		o.HostConfig.NetworkMode = "none"
	}
	made, err := x.s.engine.ContainerCreate(ctx, o)
	switch {
	case errdefs.IsNotFound(err):
		return fail(codes.FailedPrecondition, "Image %s is not built", im.id)
	case err != nil:
		return err
	}
	x.container = made.ID
	if _, err = x.s.engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return fail(codes.FailedPrecondition, "the Sandbox does not start: %v; %v", err, x.s.engine.Removed(ctx, made.ID))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rest()
	return nil
}

// rest begins to count the time in which nothing uses the Sandbox. The caller holds mu.
func (x *sandbox) rest() {
	if d := x.def.GetIdleTimeoutSecs(); d > 0 && x.busy == 0 {
		x.idle = time.AfterFunc(time.Duration(d)*time.Second, func() { x.kill(pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT) })
	}
}

// watch waits for the end of the main process, or of the time, and removes the container.
func (x *sandbox) watch() {
	ctx := x.s.life
	late := time.AfterFunc(time.Duration(x.def.GetTimeoutSecs())*time.Second, func() { x.kill(pb.GenericResult_GENERIC_STATUS_TIMEOUT) })
	defer late.Stop()
	w := x.s.engine.ContainerWait(ctx, x.container, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	code := int64(-1)
	select {
	case r := <-w.Result:
		code = r.StatusCode
	case err := <-w.Error:
		x.s.cfg.Log.Warn("waiting for a container", "sandbox", x.id, "error", err)
	}
	oom := false
	if i, err := x.s.engine.ContainerInspect(ctx, x.container, client.ContainerInspectOptions{}); err == nil && i.Container.State != nil {
		oom = i.Container.State.OOMKilled
	}
	if err := x.s.engine.Removed(context.WithoutCancel(ctx), x.container); err != nil {
		x.s.cfg.Log.Warn("removing a container", "sandbox", x.id, "error", err)
	}
	x.finish(code, oom)
}

// finish says how the Sandbox has ended.
func (x *sandbox) finish(code int64, oom bool) {
	x.mu.Lock()
	b := pb.GenericResult_builder{Status: x.why, Exitcode: int32(code)}
	switch {
	case b.Status != pb.GenericResult_GENERIC_STATUS_UNSPECIFIED:
	case code == 0:
		b.Status = pb.GenericResult_GENERIC_STATUS_SUCCESS
	case code < 0:
		b.Status, b.Exception = pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE, "the worker was lost"
	default:
		b.Status = pb.GenericResult_GENERIC_STATUS_FAILURE
		if oom {
			b.Exception = "Sandbox was killed: out of memory"
		}
	}
	x.result = b.Build()
	if x.idle != nil {
		x.idle.Stop()
	}
	x.mu.Unlock()
	close(x.ended)
	x.s.cfg.Log.Info("a sandbox has ended", "sandbox", x.id, "status", b.Status, "code", code)
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.s.dead = append(x.s.dead, x.id); len(x.s.dead) > maxDead {
		delete(x.s.sandboxes, x.s.dead[0])
		x.s.dead = x.s.dead[1:]
	}
	if i := len(x.s.dead) - maxHeard - 1; i >= 0 {
		old := x.s.sandboxes[x.s.dead[i]]
		old.mu.Lock()
		defer old.mu.Unlock()
		old.procs = nil
	}
}

// kill ends the Sandbox, for a reason that it keeps. The caller does not wait for it.
func (x *sandbox) kill(why pb.GenericResult_GenericStatus) {
	x.mu.Lock()
	first := x.why == pb.GenericResult_GENERIC_STATUS_UNSPECIFIED && x.result == nil
	if first {
		x.why = why
	}
	x.mu.Unlock()
	if !first {
		return
	}
	_, err := x.s.engine.ContainerKill(x.s.life, x.container, client.ContainerKillOptions{Signal: "KILL"})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) && x.s.life.Err() == nil {
		x.s.cfg.Log.Warn("killing a container", "sandbox", x.id, "error", err)
	}
}

// Preempt ends a Sandbox as the provider does when it needs the machine: its container is gone, and
// nobody has asked for it.
func (s *Server) Preempt(ctx context.Context, id string) error {
	s.mu.Lock()
	x := s.sandboxes[id]
	s.mu.Unlock()
	if x == nil {
		return fmt.Errorf("no Sandbox %s", id)
	}
	x.kill(pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE)
	select {
	case <-x.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// StopApp stops an app, as "modal app stop" does: its Sandboxes end, and whoever asks for an app of
// that name gets another one.
func (s *Server) StopApp(name string) {
	s.mu.Lock()
	var stopped []*sandbox
	for key, id := range s.apps {
		if !strings.HasSuffix(key, "/"+name) {
			continue
		}
		delete(s.apps, key)
		for _, x := range s.sandboxes {
			if x.app == id {
				stopped = append(stopped, x)
			}
		}
	}
	s.mu.Unlock()
	for _, x := range stopped {
		x.kill(pb.GenericResult_GENERIC_STATUS_TERMINATED)
	}
}
