//go:build !unix

package main

import (
	"context"
	"net"
)

// listenPrivate listens at a Unix socket. It has the rights of its directory.
func listenPrivate(ctx context.Context, file string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "unix", file)
}
