package flytest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

// Local is a Server that is reached over HTTP at addresses of loopback.
type Local struct {
	*Server
	API  string // what is https://api.machines.dev with Fly
	Edge string // what is https://sandboxes.fly.dev with Fly: see Server.Proxy

	api, edge http.Server
	serving   sync.WaitGroup
}

// Start starts a Server on two free ports of loopback. The caller closes it.
func Start(ctx context.Context, cfg Config) (*Local, error) {
	s, err := New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l := &Local{Server: s}
	l.api.Handler, l.edge.Handler = s, s.Proxy()
	l.api.ReadHeaderTimeout, l.edge.ReadHeaderTimeout = readTimeout, readTimeout
	if l.API, err = l.serve(&l.api); err == nil {
		l.Edge, err = l.serve(&l.edge)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Local) serve(s *http.Server) (url string, err error) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	l.serving.Go(func() { _ = s.Serve(at) }) // until it is closed
	return "http://" + at.Addr().String(), nil
}

// Close closes the Server, which removes every Machine, and cuts connections.
func (l *Local) Close() error {
	err := errors.Join(l.edge.Close(), l.Server.Close(), l.api.Close())
	l.serving.Wait()
	return err
}
