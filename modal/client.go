package modal

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
)

// named is the token as the SDK knows it. What the configuration names is put in its place in each
// request: it may be renewed, and the SDK does not have it.
const named = "named-by-the-configuration"

// The headers with the token.
const (
	headerID     = "x-modal-token-id"
	headerSecret = "x-modal-token-secret"
)

// params returns how the SDK is opened, if nothing but the configuration says so.
func (b *backend) params() (*sdk.ClientParams, error) {
	if err := b.cfg.checkEnvironment(); err != nil {
		return nil, err
	}
	wait := b.cfg.maxThrottleWait()
	return &sdk.ClientParams{
		TokenID: named, TokenSecret: named, Environment: b.cfg.Environment, Logger: b.env.Logger(), MaxThrottleWait: &wait,
		GRPCUnaryInterceptors:  []grpc.UnaryClientInterceptor{b.authorize, unary},
		GRPCStreamInterceptors: []grpc.StreamClientInterceptor{b.stream},
	}, nil
}

// authorized returns a context with the token of the configuration for one request.
func (c *Config) authorized(ctx context.Context) (context.Context, error) {
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	for _, s := range []struct {
		path, header string
		secret       driver.Secret
	}{{"token_id", headerID, c.TokenID}, {"token_secret", headerSecret, c.TokenSecret}} {
		value, err := s.secret.Value()
		if err != nil {
			return nil, status.Error(codes.Unauthenticated, driver.At(s.path, err).Error())
		}
		md.Set(s.header, value)
	}
	return metadata.NewOutgoingContext(ctx, md), nil
}

// authorize puts the token into a request.
func (b *backend) authorize(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, err := b.cfg.authorized(ctx)
	if err != nil {
		return err
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// stream puts the token into a request for a stream, and logs what Modal says while it builds an
// image.
func (b *backend) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := b.cfg.authorized(ctx)
	if err != nil {
		return nil, err
	}
	s, err := next(ctx, desc, cc, method, opts...)
	if err == nil && method == pb.ModalClient_ImageJoinStreaming_FullMethodName {
		s = &build{s, ctx, b.env.Logger()}
	}
	return s, err
}

// call is one call of the SDK, which may be several requests. It keeps what the SDK does not return
// of the answers.
type call struct {
	caller <-chan struct{} // closed when who called does not wait any more

	mu     sync.Mutex
	made   string                       // the ID of the Sandbox
	result *pb.GenericResult            // how a Sandbox has ended; nil: it has not
	tags   map[string]map[string]string // of listed Sandboxes, by ID
}

type callKey struct{}

// watched returns a context for one call of the SDK, and what is seen of it.
func watched(ctx context.Context) (context.Context, *call) {
	c := &call{caller: ctx.Done(), tags: map[string]map[string]string{}}
	return context.WithValue(ctx, callKey{}, c), c
}

// see keeps what is known by an answer.
func (c *call) see(reply any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r := reply.(type) {
	case *pb.SandboxCreateResponse:
		c.made = r.GetSandboxId()
	case *pb.SandboxCreateV2Response:
		c.made = r.GetSandboxId()
	case *pb.SandboxWaitResponse:
		c.result = r.GetResult()
	case *pb.SandboxListResponse:
		for _, s := range r.GetSandboxes() {
			tags := map[string]string{}
			for _, t := range s.GetTags() {
				tags[t.GetTagName()] = t.GetTagValue()
			}
			c.tags[s.GetId()] = tags
		}
	}
}

// take returns the tags of a listed Sandbox, and forgets them: a list may be long.
func (c *call) take(id string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tags[id]
	delete(c.tags, id)
	return t
}

// lostError is an answer to a create that says nothing about what was done. It hides the error of
// gRPC from the SDK, which would create again.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the answer was lost: " + words(e.err) }

// errLeft keeps the SDK from cleaning up for a caller who has left: the adapter does it.
var errLeft = errors.New("the caller has left")

// unary is between the SDK and the network, within what the SDK repeats. Requests that make nothing
// may be repeated, and each attempt has a time limit. One that makes a Sandbox is not repeated,
// unless Modal says that it has done nothing.
func unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c, _ := ctx.Value(callKey{}).(*call)
	if c != nil && ctx.Err() == nil {
		select {
		case <-c.caller:
			return errLeft
		default:
		}
	}
	creates := method == pb.ModalClient_SandboxCreate_FullMethodName || method == pb.ModalClient_SandboxCreateV2_FullMethodName
	if !creates {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	err := next(ctx, method, req, reply, cc, opts...)
	switch {
	case err == nil && c != nil:
		c.see(reply)
	case err != nil && creates && !refused(err):
		return &lostError{err}
	}
	return err
}

// refused reports whether an error says that what was asked for was not done.
func refused(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.ResourceExhausted, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return true
	}
	return false
}

// throttlePause is how long a call waits that is refused for its rate, if Modal does not say.
const throttlePause = time.Second

// throttled makes a call of the command router anew that was refused for its rate, until patience
// is used up. The SDK does so for the control plane only.
func throttled[T any](ctx context.Context, patience time.Duration, call func() (T, error)) (T, error) {
	for begun := time.Now(); ; {
		v, err := call()
		wait := cmp.Or(retryAfter(err), throttlePause)
		if status.Code(err) != codes.ResourceExhausted || time.Since(begun)+wait > patience || remote.Pause(ctx, wait) != nil {
			return v, err
		}
	}
}

// build is the stream about the build of an image.
type build struct {
	grpc.ClientStream
	caller context.Context // that of the stream ends with it
	log    *slog.Logger
}

// RecvMsg implements grpc.ClientStream. When a stream ends without a result, the SDK joins the
// build again at once, as often as that happens. So the end of a stream comes after a pause.
func (b *build) RecvMsg(m any) error {
	err := b.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		return cmp.Or(remote.Pause(b.caller, joinPause), err)
	}
	if r, ok := m.(*pb.ImageJoinStreamingResponse); ok && err == nil {
		for _, l := range r.GetTaskLogs() {
			if text := remote.Words(l.GetData(), maxWords); text != "" {
				b.log.Info("Modal builds an image", "said", text)
			}
		}
	}
	return err
}
