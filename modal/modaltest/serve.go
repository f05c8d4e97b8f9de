package modaltest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// fail makes the error of a call.
func fail(code codes.Code, format string, args ...any) error {
	return status.Errorf(code, format, args...)
}

// unimplemented refuses what Modal does and the server does not.
func unimplemented(what string) error {
	return fail(codes.Unimplemented, "modaltest: %s is not there", what)
}

// The lives of the tokens that the server makes.
const (
	authLife   = 20 * time.Minute
	routerLife = 10 * time.Minute
)

// claims are those of a token: whom it is for, and when it ends.
type claims struct {
	Sub string `json:"sub"`
	Exp int64  `json:"exp"`
}

// sign makes a JSON web token, with HMAC and SHA-256.
func (s *Server) sign(sub string, life time.Duration) string {
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`))
	body, _ := json.Marshal(claims{sub, time.Now().Add(life).Unix()}) // it never fails
	text := head + "." + base64.RawURLEncoding.EncodeToString(body)
	return text + "." + base64.RawURLEncoding.EncodeToString(s.mac(text))
}

func (s *Server) mac(text string) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// verify returns whom a token is for. Empty: it is none of ours, or it has ended.
func (s *Server) verify(token string) string {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return ""
	}
	sum, err := base64.RawURLEncoding.DecodeString(token[i+1:])
	if err != nil || !hmac.Equal(sum, s.mac(token[:i])) {
		return ""
	}
	_, body, _ := strings.Cut(token[:i], ".")
	text, err := base64.RawURLEncoding.DecodeString(body)
	var c claims
	if err != nil || json.Unmarshal(text, &c) != nil || time.Now().Unix() >= c.Exp {
		return ""
	}
	return c.Sub
}

// authSubject is whom the tokens for the control plane are for.
const authSubject = "client"

// allow lets a call in. Streams of the control plane come without the auth token.
func (s *Server) allow(ctx context.Context, method string, stream bool) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return fail(codes.Unavailable, "modaltest: the server is being closed")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(name string) string { // the SDK sends some headers twice
		return strings.Join(slices.Compact(md.Get(name)), ",")
	}
	if strings.HasPrefix(method, "/modal.task_command_router.") {
		token, ok := strings.CutPrefix(get("authorization"), "Bearer ")
		if !ok || !strings.HasPrefix(s.verify(token), "ta-") {
			return fail(codes.Unauthenticated, "the token of the command router is not valid")
		}
		return nil
	}
	id, secret := get("x-modal-token-id"), get("x-modal-token-secret")
	if subtle.ConstantTimeCompare([]byte(id), []byte(s.cfg.TokenID))&subtle.ConstantTimeCompare([]byte(secret), []byte(s.cfg.TokenSecret)) != 1 {
		return fail(codes.Unauthenticated, "Token ID or secret is not valid")
	}
	if !stream && path.Base(method) != "AuthTokenGet" && s.verify(get("x-modal-auth-token")) != authSubject {
		return fail(codes.Unauthenticated, "the auth token is not valid")
	}
	return nil
}

// taskOf returns the task whose command router a call may use.
func (s *Server) taskOf(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	token, _ := strings.CutPrefix(strings.Join(md.Get("authorization"), ","), "Bearer ")
	return s.verify(token)
}

// unary is what all calls with one answer have: a client that is known, fields that are known,
// switches and counts.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	s.count(method)
	if err := s.allow(ctx, info.FullMethod, false); err != nil {
		return nil, err
	}
	if m, ok := req.(proto.Message); ok {
		if err := known(m.ProtoReflect()); err != nil {
			return nil, err
		}
	}
	before, after := s.tripped(method, 0)
	if before != nil {
		return nil, before(ctx)
	}
	answer, err := handle(ctx, req)
	if after != nil && err == nil {
		return nil, after(ctx)
	}
	if m, ok := answer.(proto.Message); ok && err == nil && s.on("unknown-fields") {
		m.ProtoReflect().SetUnknown(protoreflect.RawFields{0xfa, 0x7f, 0x03, 'n', 'e', 'w'}) // field 2047, of a later version
	}
	var st interface{ GRPCStatus() *status.Status }
	if err != nil && !errors.As(err, &st) && ctx.Err() == nil {
		err = fail(codes.Internal, "modaltest: %v", err)
	}
	return answer, err
}

// stream is unary for calls with many answers.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	method := path.Base(info.FullMethod)
	s.count(method)
	if err := s.allow(ss.Context(), info.FullMethod, true); err != nil {
		return err
	}
	if before, _ := s.tripped(method, 0); before != nil {
		return before(ss.Context())
	}
	return handle(srv, &serverStream{ServerStream: ss, s: s, method: method})
}

// serverStream cuts a stream behind a message where a switch says so.
type serverStream struct {
	grpc.ServerStream
	s      *Server
	method string
	sent   int
}

// SendMsg implements grpc.ServerStream.
func (x *serverStream) SendMsg(m any) error {
	if err := x.ServerStream.SendMsg(m); err != nil {
		return err
	}
	x.sent++
	if cut, _ := x.s.tripped(x.method, x.sent); cut != nil {
		return cut(x.Context())
	}
	return nil
}

// RecvMsg implements grpc.ServerStream.
func (x *serverStream) RecvMsg(m any) error {
	if err := x.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if p, ok := m.(proto.Message); ok {
		return known(p.ProtoReflect())
	}
	return nil
}

// known refuses fields that the messages of this version of the SDK do not have: they would be
// ignored.
func known(m protoreflect.Message) error {
	if len(m.GetUnknown()) > 0 {
		return fail(codes.InvalidArgument, "modaltest: %s has a field that the server does not know", m.Descriptor().FullName())
	}
	var err error
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsMap():
			if d.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { err = known(v.Message()); return err == nil })
			}
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				if err = known(v.List().Get(i).Message()); err != nil {
					break
				}
			}
		default:
			err = known(v.Message())
		}
		return err == nil
	})
	return err
}

// only refuses a message that has other fields than those named.
func only(m proto.Message, fields ...string) error {
	allowed := map[protoreflect.Name]bool{}
	for _, f := range fields {
		allowed[protoreflect.Name(f)] = true
	}
	var err error
	r := m.ProtoReflect()
	r.Range(func(d protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !allowed[d.Name()] {
			err = unimplemented(string(r.Descriptor().Name()) + "." + string(d.Name()))
		}
		return err == nil
	})
	return err
}
