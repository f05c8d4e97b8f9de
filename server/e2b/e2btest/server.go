package e2btest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/server/e2b"
)

// Key is the API key of servers whose configuration has none.
const Key = "e2b_0123456789abcdef"

// Options configure Start. The zero value is a server over Docker without faults.
type Options struct {
	// Owner labels the sandboxes at the engine, where others may test too. Empty: driver.Env's
	// default.
	Owner string
	// Docker is the backend. Zero fields are those of the test engine: its address, the image with
	// both languages, and no pulling.
	Docker docker.Config
	// Jupyter makes Python that of Jupyter's kernels, which the image has to have.
	Jupyter bool
	// Server is the server. Without keys it has Key, without Root clients may be root, and without
	// Spec.Network sandboxes have the internet unless their client refuses it.
	Server e2b.Config
	// Faults are what is wrong from the beginning.
	Faults Faults
	// Wrap, if not nil, stands between the network and the server.
	Wrap func(http.Handler) http.Handler
}

// Server is a running server. URL is that of the control plane and of every sandbox.
type Server struct {
	URL      string
	Executor executor.Executor // what the sandboxes are of
	Handler  *e2b.Server

	faulty *faulty
	http   *http.Server
	wg     sync.WaitGroup
}

// SetFaults replaces the faults of Options, for requests that come from now on.
func (s *Server) SetFaults(f Faults) { s.faulty.set(f) }

// Docker opens the Docker backend of the tests.
func Docker(ctx context.Context, owner string, c docker.Config) (executor.Executor, error) {
	host, err := dockertest.Host()
	if err != nil {
		return nil, err
	}
	c.AllowCodeFilters = true // a sandbox of E2B is a machine of its own, in which a supervisor filters what it starts
	c.Host, c.Image, c.Pull = cmp.Or(c.Host, host), cmp.Or(c.Image, dockertest.Python), cmp.Or(c.Pull, docker.PullNever)
	if c.Languages == nil {
		c.Languages = []executor.Language{executor.Python, executor.JavaScript}
	}
	return docker.Open(ctx, driver.Env{Owner: owner}, c)
}

// Start starts a server on a free port of this machine. The caller closes it.
func Start(ctx context.Context, o Options) (*Server, error) {
	x, err := Docker(ctx, o.Owner, o.Docker)
	if err != nil {
		return nil, err
	}
	if o.Jupyter {
		x = Jupyter(x)
	}
	if o.Server.Root == nil {
		o.Server.Root = Root
	}
	if o.Server.Spec.Aliases == nil { // root can write to /mnt at E2B, and in a container to the directory of an alias only
		o.Server.Spec.Aliases = []string{"/mnt/.e2b"}
	}
	if o.Server.Spec.Network.Mode == "" { // E2B gives the internet to sandboxes whose clients do not refuse it
		o.Server.Spec.Network.Mode = executor.NetworkFull
	}
	s, err := Serve(ctx, x, o)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return s, nil
}

// Serve is Start over any backend, which then belongs to the server. Owner and Docker are not used.
func Serve(ctx context.Context, x executor.Executor, o Options) (*Server, error) {
	if len(o.Server.Keys) == 0 {
		o.Server.Keys = []string{Key}
	}
	f, h, err := newFaulty(x, o.Server, o.Faults)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	s := &Server{URL: "http://" + l.Addr().String(), Executor: x, Handler: h, faulty: f}
	s.http = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	if o.Wrap != nil {
		s.http.Handler = o.Wrap(f)
	}
	s.wg.Go(func() { _ = s.http.Serve(l) }) // until Close
	return s, nil
}

// Close breaks all connections, ends all sandboxes and closes the backend.
func (s *Server) Close() error {
	err := s.http.Close()
	s.wg.Wait()
	return errors.Join(err, s.Handler.Close(), s.Executor.Close())
}
