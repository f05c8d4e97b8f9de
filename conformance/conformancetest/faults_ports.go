package conformancetest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// dialFunc is the type of driver.Dialer.Dial.
type dialFunc = func(ctx context.Context, port int) (executor.Conn, error)

// portFaults are about connections to servers in the sandbox.
func portFaults() []Fault {
	needs := []executor.Feature{executor.FeaturePorts}
	// changed makes a fault of what changes each connection.
	changed := func(f func(s *faultySession, c executor.Conn) executor.Conn) func(driver.Driver) driver.Driver {
		return plant(tamper{dial: func(s *faultySession, ctx context.Context, port int, next dialFunc) (executor.Conn, error) {
			c, err := next(ctx, port)
			if err != nil {
				return nil, err
			}
			return f(s, c), nil
		}})
	}
	return []Fault{
		{
			Name: "ports-without-asking", Doc: "Sessions have ports that have not asked for them.", Needs: needs,
			Plant: plant(tamper{create: func(c *driver.Create) { c.Labels[driver.LabelPorts] = "yes" }}),
		},
		{
			Name: "port-of-the-host", Doc: "A port at which nothing listens in the sandbox is looked for on the machine of the backend.", Needs: needs,
			Plant: plant(tamper{dial: func(_ *faultySession, ctx context.Context, port int, next dialFunc) (executor.Conn, error) {
				c, err := next(ctx, port)
				if errors.Is(err, executor.ErrNoServer) {
					var d net.Dialer
					if there, derr := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); derr == nil {
						return there.(*net.TCPConn), nil
					}
				}
				return c, err
			}}),
		},
		{
			Name: "own-port-open", Doc: "The ports of the supervisor can be connected to.", Needs: needs,
			Plant: plant(tamper{dial: func(_ *faultySession, ctx context.Context, port int, next dialFunc) (executor.Conn, error) {
				c, err := next(ctx, port)
				if errors.Is(err, executor.ErrDenied) {
					here, there := net.Pipe()
					there.Close()
					return halfless{here}, nil
				}
				return c, err
			}}),
		},
		{
			Name: "half-close-ignored", Doc: "The end of what is sent does not get to the server.", Needs: needs,
			Plant: changed(func(_ *faultySession, c executor.Conn) executor.Conn { return halfless{c} }),
		},
		{
			Name: "connection-cut-short", Doc: "A connection looks ended after a MiB.", Needs: needs,
			Plant: changed(func(_ *faultySession, c executor.Conn) executor.Conn {
				return &faultyConn{Conn: c, read: io.LimitReader(c, 1<<20).Read}
			}),
		},
		{
			Name: "reset-as-end", Doc: "A connection that is reset looks like one that has ended.", Needs: needs,
			Plant: changed(func(_ *faultySession, c executor.Conn) executor.Conn {
				return &faultyConn{Conn: c, read: func(p []byte) (int, error) {
					n, err := c.Read(p)
					if err != nil {
						err = io.EOF
					}
					return n, err
				}}
			}),
		},
		{
			Name: "server-output-is-use", Doc: "What a server sends keeps its sandbox alive.", Needs: []executor.Feature{executor.FeaturePorts, executor.FeatureKeepAlive},
			Plant: changed(func(s *faultySession, c executor.Conn) executor.Conn {
				return &faultyConn{Conn: c, read: func(p []byte) (int, error) {
					s.Session.(driver.KeepAliver).KeepAlive(context.Background(), 3*time.Second)
					return c.Read(p)
				}}
			}),
		},
	}
}

// faultyConn is a connection whose Read is another's.
type faultyConn struct {
	executor.Conn
	read func(p []byte) (int, error)
}

func (c *faultyConn) Read(p []byte) (int, error) { return c.read(p) }

// halfless is a connection whose CloseWrite does nothing.
type halfless struct{ net.Conn }

func (halfless) CloseWrite() error { return nil }
