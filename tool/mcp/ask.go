package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionKey is the key of the client's session in the context of a call.
type sessionKey struct{}

// asking returns a context through which a call can talk to the user of its client.
func asking(ctx context.Context, s *sdk.ServerSession) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// Confirm asks the user of the client whose call has the context ctx for permission, and reports
// whether the user gave it. It is false outside of a call, and for clients that cannot ask: those
// without elicitation, and those that speak version 2026-07-28 of the protocol, in which a server
// cannot ask during a call.
func Confirm(ctx context.Context, question string) bool {
	s, ok := ctx.Value(sessionKey{}).(*sdk.ServerSession)
	if !ok {
		return false
	}
	res, err := s.Elicit(ctx, &sdk.ElicitParams{Message: question, RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}}})
	return err == nil && res.Action == "accept"
}

// tell sends a message to the log of the client whose call has the context ctx, if the client has
// asked for messages of the level.
func tell(ctx context.Context, level sdk.LoggingLevel, text string) { //nolint:staticcheck // see New
	if s, ok := ctx.Value(sessionKey{}).(*sdk.ServerSession); ok {
		_ = s.Log(ctx, &sdk.LoggingMessageParams{Level: level, Logger: "execbroker", Data: text}) //nolint:staticcheck // see New; a session finds out by itself that it has ended
	}
}
