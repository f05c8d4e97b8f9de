package modaltest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/execbroker/execbroker/internal/standin"
)

// Config configures a Server. The zero value is usable: the engine of the docker command, a free
// port, a token that is made.
type Config struct {
	// Engine is the address of the Docker engine, for example "unix:///var/run/docker.sock". Empty:
	// that of DOCKER_HOST, or else the default socket.
	Engine string
	// Listen is an address of loopback with a port, zero for a free one. Empty: 127.0.0.1:0. The
	// SDK speaks to a server without certificates only there.
	Listen string
	// TokenID and TokenSecret are what clients present. Empty: they are made, see Server.Token.
	TokenID, TokenSecret string
	// Images maps names of images to images of the engine, for what it has under another name. An
	// image that is not in it is used as it is. Nothing is ever pulled: an image that the engine
	// does not have fails to build.
	Images map[string]string
	// MaxSandboxes bounds how many Sandboxes live at a time. What exceeds it is refused with
	// ResourceExhausted. Zero means 50.
	MaxSandboxes int
	// Log gets what happens to Sandboxes, without their commands. Nil: nothing is logged.
	Log *slog.Logger
}

const defaultSandboxes = 50

// Check returns every mistake in c. New does so, too.
func (c *Config) Check() error {
	var errs []error
	if host, _, err := net.SplitHostPort(cmp.Or(c.Listen, "127.0.0.1:0")); err != nil {
		errs = append(errs, fmt.Errorf("listen: %w", err))
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		errs = append(errs, fmt.Errorf("listen: want an address of loopback, not %q: clients can become root on the machine of the engine", host))
	}
	if (c.TokenID == "") != (c.TokenSecret == "") {
		errs = append(errs, errors.New("token id and token secret: want both or neither"))
	}
	if c.MaxSandboxes < 0 {
		errs = append(errs, fmt.Errorf("max sandboxes: want zero or more, not %d", c.MaxSandboxes))
	}
	return errors.Join(errs...)
}

// Server is a stand-in that listens. Its methods are safe for concurrent use.
type Server struct {
	cfg    Config
	engine *standin.Engine
	at     net.Listener
	rpc    *grpc.Server
	life   context.Context // of everything that works in the background
	end    context.CancelFunc
	work   sync.WaitGroup // of the background
	serves sync.WaitGroup
	key    []byte // of the tokens that the server makes

	mu        sync.Mutex
	closed    bool
	apps      map[string]string   // IDs by environment and name
	images    map[string]*image   // by ID
	sandboxes map[string]*sandbox // by ID; the dead ones too, the last of them
	dead      []string            // IDs, the oldest first
	making    int                 // Sandboxes that are not in sandboxes yet
	names     map[string]bool     // of those that are being made
	switches  []*armed
	counts    map[string]int
}

var (
	_ pb.ModalClientServer       = (*control)(nil)
	_ pb.TaskCommandRouterServer = (*router)(nil)
)

// The limits of a gRPC message are those that a server of gRPC has by itself: Modal does not say
// which it has.
const maxMessage = 4 << 20

// New starts a server. It removes what servers have left that were killed on this machine.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.MaxSandboxes = cmp.Or(cfg.MaxSandboxes, defaultSandboxes)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.TokenID == "" {
		cfg.TokenID, cfg.TokenSecret = "ak-"+newID(), "as-"+newID()
	}
	cfg.Images = maps.Clone(cfg.Images)
	engine, err := standin.Open(ctx, "modaltest", cfg.Engine)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, engine: engine, key: []byte(rand.Text()), apps: map[string]string{}, images: map[string]*image{},
		sandboxes: map[string]*sandbox{}, names: map[string]bool{}, counts: map[string]int{},
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	// The SDK asks every 30 seconds whether its connection lives. A server of gRPC takes that for
	// an attack, unless it is told, and closes the connection.
	asked := keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}
	s.rpc = grpc.NewServer(grpc.WaitForHandlers(true), grpc.KeepaliveEnforcementPolicy(asked), grpc.MaxRecvMsgSize(maxMessage), grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream))
	pb.RegisterModalClientServer(s.rpc, &control{Server: s})
	pb.RegisterTaskCommandRouterServer(s.rpc, &router{Server: s})
	if err := engine.Sweep(ctx, cfg.Log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.at, err = new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(cfg.Listen, "127.0.0.1:0")); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.serves.Go(func() {
		if err := s.rpc.Serve(s.at); err != nil {
			cfg.Log.Error("serve", "error", err)
		}
	})
	return s, nil
}

// URL is the address of the server, as MODAL_SERVER_URL takes it.
func (s *Server) URL() string { return "http://" + s.at.Addr().String() }

// Token returns what clients present: of the configuration, or made.
func (s *Server) Token() (id, secret string) { return s.cfg.TokenID, s.cfg.TokenSecret }

// Containers returns the IDs of the Sandboxes whose containers the engine has: what is really
// there, whatever the server believes.
func (s *Server) Containers(ctx context.Context) ([]string, error) { return s.engine.Things(ctx) }

// closeTimeout bounds Close, whatever the engine does.
const closeTimeout = time.Minute

// Close ends and removes every Sandbox. Calls that are under way fail. An error says what may be
// left; calling it again tries again.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), closeTimeout)
	defer cancel()
	s.rpc.Stop() // waits for a Sandbox that is being made, too
	s.serves.Wait()
	s.end()
	s.work.Wait()
	return s.engine.Release(ctx)
}

// newID returns 22 letters and digits, as Modal's identifiers have after their prefix.
func newID() string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	b := make([]byte, 22)
	_, _ = rand.Read(b) // it never fails
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// newV2ID returns what follows the prefix of a Sandbox of V2: anything but the form of V1.
func newV2ID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return strings.ToLower(hex.EncodeToString(b))
}
