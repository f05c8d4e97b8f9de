package modaltest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
)

// builderVersion is what the server says that images are built with.
const builderVersion = "2025.06"

// image is an image of Modal, which is one of the engine.
type image struct {
	id  string
	ref string // of the engine
}

// control is the control plane. Methods that it does not have answer Unimplemented.
type control struct {
	pb.UnimplementedModalClientServer
	*Server
}

// AuthTokenGet implements pb.ModalClientServer.
func (c *control) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: c.sign(authSubject, authLife)}.Build(), nil
}

// EnvironmentGetOrCreate implements pb.ModalClientServer. Every environment is there.
func (c *control) EnvironmentGetOrCreate(_ context.Context, r *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-" + newID(),
		Metadata: pb.EnvironmentMetadata_builder{
			Name: r.GetDeploymentName(), Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: builderVersion}.Build(),
		}.Build(),
	}.Build(), nil
}

// AppGetOrCreate implements pb.ModalClientServer.
func (c *control) AppGetOrCreate(_ context.Context, r *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.GetEnvironmentName() + "/" + r.GetAppName()
	id := c.apps[key]
	if id == "" {
		if r.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, fail(codes.NotFound, "App '%s' not found", r.GetAppName())
		}
		id = "ap-" + newID()
		c.apps[key] = id
	}
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

// hasApp reports whether there is an app. The caller holds no lock.
func (s *Server) hasApp(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.apps {
		if known == id {
			return true
		}
	}
	return false
}

// ImageGetOrCreate implements pb.ModalClientServer. An image is built when it is asked for the
// first time: ImageJoinStreaming waits for that.
func (c *control) ImageGetOrCreate(ctx context.Context, r *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	if err := only(r.GetImage(), "dockerfile_commands", "base_images", "context_files"); err != nil {
		return nil, err
	}
	if !c.hasApp(r.GetAppId()) {
		return nil, fail(codes.NotFound, "App '%s' not found", r.GetAppId())
	}
	lines := r.GetImage().GetDockerfileCommands()
	if len(lines) != 1 || len(r.GetImage().GetBaseImages()) > 0 {
		return nil, unimplemented("an image with layers of its own")
	}
	ref, ok := strings.CutPrefix(lines[0], "FROM ")
	if !ok {
		return nil, unimplemented("an image that is not from a registry")
	}
	sum := sha256.Sum256([]byte(ref))
	id := "im-" + hex.EncodeToString(sum[:11])
	c.mu.Lock()
	_, built := c.images[id]
	if !built {
		c.images[id] = &image{id: id, ref: ref}
	}
	c.mu.Unlock()
	answer := pb.ImageGetOrCreateResponse_builder{ImageId: id}
	if built && c.find(ctx, ref) == nil && !c.on("build-fails") {
		answer.Result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
	} else if !built {
		c.count("images")
	}
	return answer.Build(), nil
}

// find reports whether the engine has an image.
func (s *Server) find(ctx context.Context, ref string) error {
	_, err := s.engine.ImageInspect(ctx, s.refOf(ref))
	return err
}

func (s *Server) refOf(ref string) string {
	if to, ok := s.cfg.Images[ref]; ok {
		return to
	}
	return ref
}

// ImageJoinStreaming implements pb.ModalClientServer: what is said of a build until it has ended.
func (c *control) ImageJoinStreaming(r *pb.ImageJoinStreamingRequest, stream pb.ModalClient_ImageJoinStreamingServer) error {
	c.mu.Lock()
	im := c.images[r.GetImageId()]
	c.mu.Unlock()
	if im == nil {
		return fail(codes.NotFound, "Image '%s' not found", r.GetImageId())
	}
	say := func(entry, text string) error {
		return stream.Send(pb.ImageJoinStreamingResponse_builder{
			EntryId: entry, TaskLogs: []*pb.TaskLogs{pb.TaskLogs_builder{Data: text, Timestamp: float64(time.Now().Unix())}.Build()},
		}.Build())
	}
	if r.GetLastEntryId() == "" {
		if err := say("1-0", "Building image "+im.id+"\n"); err != nil {
			return err
		}
	}
	result := pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}
	switch err := c.find(stream.Context(), im.ref); {
	case c.on("build-fails"):
		result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: "the build has failed"}
	case errdefs.IsNotFound(err), errdefs.IsInvalidArgument(err):
		result = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: "manifest unknown: " + im.ref}
	case err != nil:
		return err
	}
	return stream.Send(pb.ImageJoinStreamingResponse_builder{EntryId: "2-0", Result: result.Build(), Eof: true}.Build())
}

// ImageFromId implements pb.ModalClientServer.
func (c *control) ImageFromId(_ context.Context, r *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) { //nolint:staticcheck // the name is Modal's
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images[r.GetImageId()] == nil {
		return nil, fail(codes.NotFound, "Image '%s' not found", r.GetImageId())
	}
	return pb.ImageFromIdResponse_builder{ImageId: r.GetImageId()}.Build(), nil
}

// ImageGetByTag implements pb.ModalClientServer: an image that was published under a name. Here
// those are the keys of Config.Images.
func (c *control) ImageGetByTag(_ context.Context, r *pb.ImageGetByTagRequest) (*pb.ImageGetByTagResponse, error) {
	if _, ok := c.cfg.Images[r.GetTag()]; !ok {
		return nil, fail(codes.NotFound, "Image '%s' not found", r.GetTag())
	}
	sum := sha256.Sum256([]byte("name " + r.GetTag()))
	id := "im-" + hex.EncodeToString(sum[:11])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.images[id] = &image{id: id, ref: r.GetTag()}
	return pb.ImageGetByTagResponse_builder{ImageId: id}.Build(), nil
}
