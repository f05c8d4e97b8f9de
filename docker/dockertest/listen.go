package dockertest

import (
	"context"
	"net"

	"github.com/moby/moby/client"
)

// Listen listens where containers with a network reach it and nobody else does.
func Listen(ctx context.Context) (net.Listener, error) {
	host, err := Host()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.WithHost(host))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	n, err := c.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if err != nil {
		return nil, err
	}
	at := n.Network.IPAM.Config[0].Gateway
	if !at.IsValid() { // so it is until an engine is started for the second time
		at = n.Network.IPAM.Config[0].Subnet.Masked().Addr().Next()
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(at.String(), "0"))
}
