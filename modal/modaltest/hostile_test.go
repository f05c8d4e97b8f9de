package modaltest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// unknownField adds a field of a later version to an answer that is asked for.
func unknownField(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if m, ok := req.(proto.Message); ok && method == "/modal.client.ModalClient/AppGetOrCreate" {
		m.ProtoReflect().SetUnknown([]byte{0xfa, 0x7f, 0x03, 'n', 'e', 'w'})
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}
