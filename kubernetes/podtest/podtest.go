// Package podtest is the part of the API of Kubernetes that is about pods, over a Docker engine: a
// pod is a container. Tests of package kubernetes use it where a cluster would take too long.
//
//	s, err := podtest.Start(ctx, podtest.Config{Namespace: "sandboxes"})
//	...
//	file := s.Kubeconfig // of a client that may do everything
//	...
//	err = s.Close()      // removes every pod
//
// # What is the same as with a cluster
//
// Create, get, list with pages, watch and delete of pods, exec and attach over WebSockets with the
// protocol v5.channel.k8s.io, and access reviews. Images are those of the engine. What a client has
// to know of a cluster is so here, too:
//
//   - A pod is made before it is on a node. Its status is late by a third of a second.
//   - An exec is answered with 101 before the node is asked. That a container is not there comes
//     later, and what was sent until then is lost.
//   - What a container writes before somebody is attached is not said again.
//   - A pod that is deleted with a grace of zero is gone at once, and its code is not.
//   - A pod that has ended stays until somebody deletes it.
//   - A quota and Pod Security refuse with 403, as missing rights do, and only words tell which.
//
// package kubernetes runs the same tests against a real cluster, which is what checks this one.
//
// # What is not here
//
// Whatever is not about pods; what policies let through; volumes but memory; several containers;
// more than one node.
package podtest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"
	networkingv1 "k8s.io/api/networking/v1"
)

// Config says what a Server is.
type Config struct {
	// Engine is the address of a Docker engine. Empty: that of the environment.
	Engine string
	// Namespace is the only one that is there.
	Namespace string
	// Pods is the quota of the namespace. Zero: none.
	Pods int
	// Baseline makes the namespace refuse what Pod Security does at the level of that name.
	Baseline bool
	// Enforces is whether the network enforces policies: a pod that one selects has no network.
	// Otherwise they are taken and forgotten, as by a cluster without an engine for them.
	Enforces bool
	// Hides tells pods an address of the API server and of the node at which nobody answers, as if
	// the network cut them off from these two, whatever else they reach.
	Hides bool
}

// Server is an API server with a node.
type Server struct {
	Kubeconfig string // the path of a file

	cfg    Config
	engine *client.Client
	http   *httptest.Server
	dir    string
	token  string
	label  string // of its containers
	node   string // the address of the node, and of the API server, as pods see them

	life context.Context // until Close
	end  context.CancelFunc
	work sync.WaitGroup // of pods and streams

	requests atomic.Int64

	mu       sync.Mutex
	pods     map[string]*pod // by name
	version  int             // of the last change
	watchers map[*watcher]bool
	policies map[string]*networkingv1.NetworkPolicy
}

// labelServer marks the containers of a Server.
const labelServer = "execbroker.podtest"

// Start starts a Server on a free port of loopback. The caller closes it.
func Start(ctx context.Context, cfg Config) (s *Server, err error) {
	// No connection outlives its request: who counts what is left in a process of tests need not
	// know about them.
	t := &http.Transport{DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}} // HTTP/1 only
	opts := []client.Opt{client.WithHTTPClient(&http.Client{Transport: t}), client.FromEnv}
	if cfg.Engine != "" {
		opts[1] = client.WithHost(cfg.Engine)
	}
	engine, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if _, err := engine.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), engine.Close())
	}
	s = &Server{cfg: cfg, engine: engine, token: rand.Text(), label: rand.Text(), pods: map[string]*pod{}, watchers: map[*watcher]bool{}, policies: map[string]*networkingv1.NetworkPolicy{}}
	if s.node, err = s.gateway(ctx); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.http = httptest.NewTLSServer(s.routes())
	if s.dir, err = os.MkdirTemp("", "podtest-"); err == nil {
		s.Kubeconfig = filepath.Join(s.dir, "config")
		err = os.WriteFile(s.Kubeconfig, s.kubeconfig(), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// gateway returns the address of the engine's machine in the network of containers, or one of
// nobody.
func (s *Server) gateway(ctx context.Context) (string, error) {
	n, err := s.engine.NetworkInspect(ctx, "bridge", client.NetworkInspectOptions{})
	if err != nil {
		return "", fmt.Errorf("engine: %w", err)
	}
	if len(n.Network.IPAM.Config) == 0 {
		return "", errors.New("engine: the network bridge has no addresses")
	}
	at := n.Network.IPAM.Config[0].Gateway
	if s.cfg.Hides { // containers get addresses from the other end
		last := n.Network.IPAM.Config[0].Subnet.Masked().Addr().As4()
		binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(last[:])|(1<<(32-n.Network.IPAM.Config[0].Subnet.Bits())-2))
		return netip.AddrFrom4(last).String(), nil
	}
	if !at.IsValid() { // so it is until an engine is started for the second time
		at = n.Network.IPAM.Config[0].Subnet.Masked().Addr().Next()
	}
	return at.String(), nil
}

// kubeconfig is what a client needs to know.
func (s *Server) kubeconfig() []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: podtest, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: client, user: {token: %s}}]
contexts: [{name: podtest, context: {cluster: podtest, user: client}}]
current-context: podtest
`, s.http.URL, base64.StdEncoding.EncodeToString(ca), s.token)
}

// closeTimeout is how long an engine may take to remove what is left.
const closeTimeout = 30 * time.Second

// Close removes every pod and cuts connections.
func (s *Server) Close() error {
	s.end()
	s.http.CloseClientConnections()
	s.http.Close()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	left, err := s.Containers(ctx)
	for _, id := range left {
		_, rerr := s.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, rerr)
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return errors.Join(err, s.engine.Close())
}

// Requests returns how many requests it has had so far.
func (s *Server) Requests() int64 { return s.requests.Load() }

// Containers returns the containers of pods, also of those that are no longer there.
func (s *Server) Containers(ctx context.Context) (ids []string, err error) {
	list, err := s.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelServer+"="+s.label)})
	for _, c := range list.Items {
		ids = append(ids, c.ID)
	}
	return ids, err
}
