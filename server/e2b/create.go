package e2b

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// create starts a sandbox.
func (s *Server) create(ctx context.Context, o owner, body []byte, timeout time.Duration) (int, any, error) {
	var n newSandbox
	if err := decodeJSON(body, &n); err != nil {
		return 0, nil, err
	}
	if n.Timeout != nil {
		var err error
		if timeout, err = s.seconds(*n.Timeout); err != nil {
			return 0, nil, err
		}
	}
	timeout = min(timeout, s.cfg.MaxTimeout) // the default may be more than the backend allows
	id := "i" + newToken()[:20]
	spec, err := s.spec(n, id, timeout)
	if err != nil {
		return 0, nil, err
	}
	then, err := s.then(n.AutoPause)
	if err != nil {
		return 0, nil, err
	}
	if err := s.reserve(o); err != nil {
		return 0, nil, err
	}
	session, err := s.session(ctx, spec)
	if err != nil {
		s.mu.Lock()
		s.release(o)
		s.mu.Unlock()
		s.lives.Done()
		return 0, nil, err
	}
	b := &sandbox{
		id: id, owner: o, template: n.TemplateID, token: newToken(), metadata: n.Metadata, egress: spec.Network,
		started: time.Now(), session: session, home: executor.Workdir, root: s.cfg.Root, onTimeout: then, moved: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	b.end = b.started.Add(timeout)
	b.note("sandbox created")
	if n.AutoResume.Enabled {
		b.resumes = timeout
	}
	caps := session.Info().Capabilities
	if slices.Contains(session.Info().Aliases, home) {
		b.home = home
	}
	b.contexts, b.said = newContexts(caps, b.home), newMetadata(session.Info())
	if caps.MaxLife > 0 {
		b.latest = b.started.Add(caps.MaxLife)
	}
	if !caps.Has(executor.FeatureKeepAlive) { // it may be unused for as long as its spec says
		b.latest = b.started.Add(s.cfg.MaxTimeout)
	}
	b.private = n.Network != nil && n.Network.AllowPublicTraffic != nil && !*n.Network.AllowPublicTraffic
	if b.private || s.cfg.Ports == PortsPrivate {
		b.traffic = newToken()
	}
	if s.cfg.Ports != PortsOff {
		b.forward = s.newForward(b)
	}
	if spec.Run.WallTime == executor.NoLimit {
		b.wall = s.cfg.MaxTimeout
	}
	b.life, b.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	b.envd = b.newEnvd()
	s.mu.Lock()
	if s.closed { // Close does not know of it
		b.stop(errServerClosed)
	}
	s.boxes[id], b.use = b, s.used.PushFront(b)
	s.mu.Unlock()
	go s.live(b) // Close waits for it
	s.cfg.Log.Debug("sandbox created", "sandbox", id, "session", session.Info().Handle.Session)
	if b.life.Err() != nil {
		return 0, nil, refuse(http.StatusServiceUnavailable, "%v", errServerClosed)
	}
	return http.StatusCreated, s.answer(b), nil
}

// home is where programs of E2B have their files.
const home = "/home/user"

// session makes a session that has its working directory at home, too, if the backend has aliases.
// A template with something of its own there goes without. Each template is tried once.
func (s *Server) session(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	wished := spec
	wished.Aliases = append(slices.Clone(spec.Aliases), home)
	_, without := s.homeless.Load(spec.Template)
	if without || !s.x.Info().Capabilities.Has(executor.FeatureAliases) || wished.Validate() != nil {
		return s.x.Create(ctx, spec)
	}
	b, err := s.x.Create(ctx, wished)
	if !errors.Is(err, executor.ErrUnsupported) {
		return b, err
	}
	b, other := s.x.Create(ctx, spec)
	if other != nil {
		return nil, other
	}
	s.homeless.Store(spec.Template, true)
	s.cfg.Log.Warn("sandboxes have no "+home, "template", spec.Template, "err", err)
	return b, nil
}

// reserve counts a sandbox that o is about to create, and makes Close wait for it.
func (s *Server) reserve(o owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return refuse(http.StatusServiceUnavailable, "%v", errServerClosed)
	}
	if s.held[o] >= s.cfg.MaxSandboxes {
		return refuse(http.StatusTooManyRequests, "you have reached the maximum number of concurrent E2B sandboxes (%d); kill one first", s.cfg.MaxSandboxes)
	}
	s.held[o]++
	s.lives.Add(1)
	return nil
}

// seconds checks a timeout that a client asks for.
func (s *Server) seconds(n int64) (time.Duration, error) {
	switch {
	case n <= 0:
		return 0, refuse(http.StatusBadRequest, "Timeout must be greater than 0")
	case n > int64(s.cfg.MaxTimeout/time.Second):
		return 0, refuse(http.StatusBadRequest, "Timeout cannot be greater than %v", s.cfg.MaxTimeout)
	}
	return time.Duration(n) * time.Second, nil
}

// merged returns a new map with the entries of all; the last one has precedence.
func merged(all ...map[string]string) map[string]string {
	m := map[string]string{}
	for _, more := range all {
		maps.Copy(m, more)
	}
	return m
}

// spec says what a client asks for in the words of the contract.
func (s *Server) spec(n newSandbox, id string, timeout time.Duration) (executor.Spec, error) {
	caps := s.x.Info().Capabilities
	spec := s.cfg.Spec
	for _, u := range []struct {
		asked bool
		what  string
	}{
		{says(n.MCP), "mcp"}, {says(n.IAM), "iam"},
		{says(n.VolumeMounts), "volumeMounts"},
	} {
		if u.asked {
			return spec, unsupported(u.what)
		}
	}
	var ok bool
	if spec.Template, ok = s.cfg.template(n.TemplateID, caps); !ok {
		return spec, refuse(http.StatusNotFound, "template %q not found", n.TemplateID)
	}
	var err error
	if spec.Network, err = s.egress(n); err != nil {
		return spec, err
	}
	spec.Env = merged(spec.Env, n.EnvVars)
	spec.Labels = merged(spec.Labels, map[string]string{"e2b.sandbox": id})
	// If this process dies, the backend ends the session by its idle TTL. Where that cannot be
	// changed later, it has to be as long as the longest timeout that clients may ask for.
	spec.IdleTTL = timeout + spareOf(timeout)
	if !caps.Has(executor.FeatureKeepAlive) {
		spec.IdleTTL = s.cfg.MaxTimeout + spare
	}
	if caps.MaxLife > 0 {
		spec.IdleTTL = min(spec.IdleTTL, caps.MaxLife)
	}
	return spec, nil
}
