package modaltest

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
)

// SandboxCreate implements pb.ModalClientServer: V1, whose Sandboxes get a task a moment later.
func (c *control) SandboxCreate(_ context.Context, r *pb.SandboxCreateRequest) (*pb.SandboxCreateResponse, error) {
	if err := only(r, "app_id", "definition", "environment_name", "tags"); err != nil {
		return nil, err
	}
	if len(r.GetDefinition().GetSecretIds()) > 0 {
		return nil, unimplemented("a stored Secret")
	}
	x, err := c.make(r.GetAppId(), r.GetDefinition(), r.GetTags(), nil, false)
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateResponse_builder{SandboxId: x.id}.Build(), nil
}

// SandboxCreateV2 implements pb.ModalClientServer.
func (c *control) SandboxCreateV2(_ context.Context, r *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	if err := only(r, "app_id", "definition", "tags", "secret_sources"); err != nil {
		return nil, err
	}
	env, err := environment(r.GetSecretSources())
	if err != nil {
		return nil, err
	}
	x, err := c.make(r.GetAppId(), r.GetDefinition(), r.GetTags(), env, true)
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateV2Response_builder{
		SandboxId: x.id, TaskId: x.task,
		CommandRouterAccess: pb.CommandRouterAccess_builder{Jwt: c.sign(x.task, routerLife), Url: c.routerURL()}.Build(),
	}.Build(), nil
}

// routerURL is where the command router is: the SDK wants https, and uses no certificates on
// loopback.
func (s *Server) routerURL() string { return "https://" + s.at.Addr().String() }

// environment reads the variables that come with a request.
func environment(sources []*pb.SecretSource) ([]string, error) {
	var env []string
	for _, src := range sources {
		if !src.HasEnv() {
			return nil, unimplemented("a stored Secret")
		}
		for _, k := range slices.Sorted(maps.Keys(src.GetEnv().GetContents())) {
			env = append(env, k+"="+src.GetEnv().GetContents()[k])
		}
	}
	return env, nil
}

// definition is what a Sandbox may have.
var definition = []string{
	"entrypoint_args", "image_id", "timeout_secs", "idle_timeout_secs", "workdir", "network_access", "resources", "open_ports",
	"cloud_provider_str", "scheduler_placement", "name", "runtime", "verbose",
}

// The clouds, and the form of the regions, that Modal's documentation names.
var (
	clouds = []string{"", "auto", "aws", "gcp", "oci"}
	region = regexp.MustCompile(`^(us|eu|ap|uk|ca|me|sa|af|mx|jp|au)(-[a-z0-9-]+)?$`)
)

// check refuses a definition that is wrong, or more than the server does.
func check(d *pb.Sandbox) error {
	if err := only(d, definition...); err != nil {
		return err
	}
	if err := only(d.GetResources(), "milli_cpu", "milli_cpu_max", "memory_mb", "memory_mb_max", "gpu_config"); err != nil {
		return err
	}
	switch n := d.GetNetworkAccess(); {
	case d.GetResources().GetGpuConfig().GetGpuType() != "":
		return unimplemented("a GPU")
	case len(d.GetOpenPorts().GetPorts()) > 0:
		return unimplemented("a tunnel")
	case n.GetNetworkAccessType() != pb.NetworkAccess_OPEN && n.GetNetworkAccessType() != pb.NetworkAccess_BLOCKED:
		return unimplemented("network access " + n.GetNetworkAccessType().String())
	case d.GetTimeoutSecs() < 1 || d.GetTimeoutSecs() > 24*60*60:
		return fail(codes.InvalidArgument, "Sandbox timeout must be between 1 second and 24 hours")
	case !slices.Contains(clouds, d.GetCloudProviderStr()):
		return fail(codes.InvalidArgument, "invalid cloud '%s'", d.GetCloudProviderStr())
	case slices.ContainsFunc(d.GetSchedulerPlacement().GetRegions(), func(r string) bool { return !region.MatchString(r) }):
		return fail(codes.InvalidArgument, "invalid region among %q", d.GetSchedulerPlacement().GetRegions())
	case len(d.GetName()) > 64:
		return fail(codes.InvalidArgument, "Sandbox name is longer than 64 characters")
	}
	return nil
}

// byID returns a Sandbox of the given generation.
func (s *Server) byID(id string, v2 bool) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.sandboxes[id]
	if x == nil || x.v2 != v2 {
		return nil, fail(codes.NotFound, "Sandbox with ID '%s' not found", id)
	}
	return x, nil
}

// byTask returns the Sandbox of a task.
func (s *Server) byTask(task string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.sandboxes {
		if x.task == task {
			return x, nil
		}
	}
	return nil, fail(codes.NotFound, "Task '%s' not found", task)
}

func (c *control) taskID(id string, v2 bool) (*pb.SandboxGetTaskIdResponse, error) {
	x, err := c.byID(id, v2)
	if err != nil {
		return nil, err
	}
	b := pb.SandboxGetTaskIdResponse_builder{}
	switch r := x.ending(); {
	case r != nil:
		b.TaskResult = r
	case v2 || !c.on("slow-scheduling"):
		b.TaskId = &x.task
	}
	return b.Build(), nil
}

// SandboxGetTaskId implements pb.ModalClientServer.
func (c *control) SandboxGetTaskId(_ context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) { //nolint:staticcheck // the name is Modal's
	return c.taskID(r.GetSandboxId(), false)
}

// SandboxGetTaskIdV2 implements pb.ModalClientServer.
func (c *control) SandboxGetTaskIdV2(_ context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) { //nolint:staticcheck // the name is Modal's
	return c.taskID(r.GetSandboxId(), true)
}

// maxWait bounds how long a call waits for the end of a Sandbox.
const maxWait = time.Minute

func (c *control) wait(ctx context.Context, r *pb.SandboxWaitRequest, v2 bool) (*pb.SandboxWaitResponse, error) {
	x, err := c.byID(r.GetSandboxId(), v2)
	if err != nil {
		return nil, err
	}
	late := time.NewTimer(min(time.Duration(float64(r.GetTimeout())*float64(time.Second)), maxWait))
	defer late.Stop()
	select {
	case <-x.ended:
	case <-late.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return pb.SandboxWaitResponse_builder{Result: x.ending(), Metadata: pb.SandboxHandleMetadata_builder{AppId: x.app}.Build()}.Build(), nil
}

// SandboxWait implements pb.ModalClientServer.
func (c *control) SandboxWait(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.wait(ctx, r, false)
}

// SandboxWaitV2 implements pb.ModalClientServer.
func (c *control) SandboxWaitV2(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.wait(ctx, r, true)
}

func (c *control) terminate(id string, v2 bool) (*pb.SandboxTerminateResponse, error) {
	x, err := c.byID(id, v2)
	if err != nil {
		return nil, err
	}
	b := pb.SandboxTerminateResponse_builder{ExistingResult: x.ending()}
	if b.ExistingResult == nil {
		x.kill(pb.GenericResult_GENERIC_STATUS_TERMINATED)
	}
	return b.Build(), nil
}

// SandboxTerminate implements pb.ModalClientServer. It does not wait.
func (c *control) SandboxTerminate(_ context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.terminate(r.GetSandboxId(), false)
}

// SandboxTerminateV2 implements pb.ModalClientServer.
func (c *control) SandboxTerminateV2(_ context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.terminate(r.GetSandboxId(), true)
}

// pageSize is how many Sandboxes an answer lists.
const pageSize = 20

// list lists Sandboxes that live, the newest first: those that were made before the last of the
// page before.
func (c *control) list(r *pb.SandboxListRequest, both bool) (*pb.SandboxListResponse, error) {
	before := r.GetBeforeTimestamp()
	if c.on("same-page") {
		before = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*sandbox
	for _, x := range c.sandboxes {
		switch {
		case x.v2 && !both, r.GetAppId() != "" && x.app != r.GetAppId(), before > 0 && x.created >= before,
			!r.GetIncludeFinished() && x.ending() != nil, !x.tagged(r.GetTags()):
		default:
			found = append(found, x)
		}
	}
	slices.SortFunc(found, func(a, b *sandbox) int { return strings.Compare(b.order(), a.order()) })
	var infos []*pb.SandboxInfo
	for _, x := range found[:min(len(found), pageSize)] {
		infos = append(infos, pb.SandboxInfo_builder{
			Id: x.id, CreatedAt: x.created, AppId: x.app, Name: x.name, Tags: tagList(x.tags), TimeoutSecs: x.def.GetTimeoutSecs(),
			TaskInfo: pb.TaskInfo_builder{Id: x.task}.Build(),
		}.Build())
	}
	return pb.SandboxListResponse_builder{Sandboxes: infos}.Build(), nil
}

// SandboxList implements pb.ModalClientServer: V1 alone.
func (c *control) SandboxList(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(r, false)
}

// SandboxListV2 implements pb.ModalClientServer: both generations.
func (c *control) SandboxListV2(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(r, true)
}

func tagList(tags map[string]string) (list []*pb.SandboxTag) {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, pb.SandboxTag_builder{TagName: k, TagValue: tags[k]}.Build())
	}
	return list
}

// Bounds of tags. Modal does not say which it has.
const (
	maxTags = 20
	maxTag  = 1024 // of a value
)

func tagMap(list []*pb.SandboxTag) (map[string]string, error) {
	tags := map[string]string{}
	for _, t := range list {
		if t.GetTagName() == "" || len(t.GetTagName()) > 64 || len(t.GetTagValue()) > maxTag {
			return nil, fail(codes.InvalidArgument, "tag %.80q is empty or too long", t.GetTagName())
		}
		tags[t.GetTagName()] = t.GetTagValue()
	}
	if len(tags) > maxTags {
		return nil, fail(codes.InvalidArgument, "a Sandbox has at most %d tags", maxTags)
	}
	return tags, nil
}

func (c *control) tags(id string, v2 bool) (*pb.SandboxTagsGetResponse, error) {
	x, err := c.byID(id, v2)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return pb.SandboxTagsGetResponse_builder{Tags: tagList(x.tags)}.Build(), nil
}

// SandboxTagsGet implements pb.ModalClientServer.
func (c *control) SandboxTagsGet(_ context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.tags(r.GetSandboxId(), false)
}

// SandboxTagsGetV2 implements pb.ModalClientServer.
func (c *control) SandboxTagsGetV2(_ context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return c.tags(r.GetSandboxId(), true)
}

func (c *control) setTags(r *pb.SandboxTagsSetRequest, v2 bool) (*emptypb.Empty, error) {
	x, err := c.byID(r.GetSandboxId(), v2)
	if err != nil {
		return nil, err
	}
	tags, err := tagMap(r.GetTags())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	x.tags = tags
	return &emptypb.Empty{}, nil
}

// SandboxTagsSet implements pb.ModalClientServer.
func (c *control) SandboxTagsSet(_ context.Context, r *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.setTags(r, false)
}

// SandboxTagsSetV2 implements pb.ModalClientServer.
func (c *control) SandboxTagsSetV2(_ context.Context, r *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	return c.setTags(r, true)
}

// fromName finds a Sandbox by its name: the one that lives, or the last that did.
func (c *control) fromName(r *pb.SandboxGetFromNameRequest, v2 bool) (*pb.SandboxGetFromNameResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	app := c.apps[r.GetEnvironmentName()+"/"+r.GetAppName()]
	var found *sandbox
	for _, x := range c.sandboxes {
		switch over := x.ending() != nil; {
		case x.name != r.GetSandboxName() || x.app != app || x.v2 != v2 || over && !r.GetIncludeTerminated():
		case !over:
			return pb.SandboxGetFromNameResponse_builder{SandboxId: x.id}.Build(), nil
		case found == nil || x.created > found.created:
			found = x
		}
	}
	if found == nil {
		return nil, fail(codes.NotFound, "no Sandbox of that name")
	}
	return pb.SandboxGetFromNameResponse_builder{SandboxId: found.id}.Build(), nil
}

// SandboxGetFromName implements pb.ModalClientServer.
func (c *control) SandboxGetFromName(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(r, false)
}

// SandboxGetFromNameV2 implements pb.ModalClientServer.
func (c *control) SandboxGetFromNameV2(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(r, true)
}

// SandboxGetCommandRouterAccess implements pb.ModalClientServer.
func (c *control) SandboxGetCommandRouterAccess(_ context.Context, r *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	x, err := c.byID(r.GetSandboxId(), true)
	if err != nil {
		return nil, err
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: c.sign(x.task, routerLife), Url: c.routerURL()}.Build(), nil
}

// TaskGetCommandRouterAccess implements pb.ModalClientServer.
func (c *control) TaskGetCommandRouterAccess(_ context.Context, r *pb.TaskGetCommandRouterAccessRequest) (*pb.TaskGetCommandRouterAccessResponse, error) {
	x, err := c.byTask(r.GetTaskId())
	if err != nil {
		return nil, err
	}
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: c.sign(x.task, routerLife), Url: c.routerURL()}.Build(), nil
}
