package flytest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

var machineName = appName

// create makes a Machine. It answers when the Machine is recorded; its container comes into being
// afterwards, as with Fly.
func create(ctx context.Context, c *call, in *createInput) (answer, error) {
	cfg, without, err := parseConfig(in.Config)
	if err != nil {
		return answer{}, err
	}
	if in.Name != "" && !machineName.MatchString(in.Name) {
		return answer{}, ours("name: want letters, digits and hyphens, at most 63, not %.80q", in.Name)
	}
	if in.LeaseTTL < 0 {
		return answer{}, ours("lease_ttl: want zero or more, not %d", in.LeaseTTL)
	}
	region, err := c.s.place(c, in.Region)
	if err != nil {
		return answer{}, err
	}
	info, err := c.s.presentImage(ctx, cfg.Image)
	if err != nil {
		return answer{}, err
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return answer{}, fail(http.StatusServiceUnavailable, "flytest: %v", errClosed)
	}
	if living := s.living(); living >= s.cfg.MaxMachines {
		s.cfg.Log.Warn("no capacity: Config.MaxMachines is reached", "machines", living)
		return answer{}, errRegionFull()
	}
	if in.Name == "" {
		in.Name = fmt.Sprintf("%s-%s-%d", pick("autumn", "bold", "calm", "damp", "frosty", "green", "icy", "misty"), pick("bird", "brook", "dew", "fire", "glade", "leaf", "pond", "sky"), 1+rand.IntN(9999))
	}
	for _, m := range c.app.machines {
		if m.name == in.Name && m.state != stateDestroyed {
			return answer{}, errNameTaken(m.id, in.Name)
		}
	}
	s.serial++
	now := time.Now()
	m := &machine{
		s: s, app: c.app, id: machineID(s.serial, rand.Uint64()), address: address(c.app.Name, s.serial), created: now, updated: now,
		name: in.Name, region: region, instance: newULID(now), raw: in.Config, cfg: cfg, image: reference(cfg.Image, info),
		commands: make(chan command, 64), done: make(chan struct{}), interrupt: func() {},
	}
	m.versions = []version{{m.instance, in.Config}}
	c.app.machines[m.id] = m
	c.m = m
	m.set(stateCreated, "launch", "user", nil)
	if len(without) > 0 {
		s.cfg.Log.Warn("machine: parts of its configuration have no effect in the emulator", "app", c.app.Name, "id", m.id, "parts", without)
	}
	v := m.view()
	if in.LeaseTTL > 0 {
		m.lease = newLease(m, in.LeaseTTL, "")
		v.Nonce = m.lease.nonce
	}
	s.born(m)
	m.begin()
	if in.SkipLaunch {
		m.commands <- command{kind: doPrepare} // it has room
	} else {
		m.commands <- command{kind: doBoot}
	}
	return ok(v)
}

func pick(words ...string) string { return words[rand.IntN(len(words))] }

// living counts the Machines that are not destroyed. The caller holds Server.mu.
func (s *Server) living() (n int) {
	for _, a := range s.apps {
		for _, m := range a.machines {
			if m.state != stateDestroyed {
				n++
			}
		}
	}
	return n
}

// aliases of regions, as in "eu,us,any".
var aliases = map[string][]string{
	"us": {"iad", "ord", "lax", "sjc", "ewr", "dfw"}, "eu": {"fra", "lhr", "ams", "cdg", "arn"}, "apac": {"nrt", "sin", "syd"},
	"na": {"iad", "ord", "lax", "sjc", "ewr", "dfw", "yyz"}, "sa": {"gru"},
}

// place finds the region of a new Machine: the first of the expression that exists and has
// capacity.
func (s *Server) place(c *call, expression string) (string, error) {
	expression = cmp.Or(expression, s.cfg.Regions[0])
	var last error
	for part := range strings.SplitSeq(expression, ",") {
		part = strings.TrimSpace(part)
		wanted := []string{part}
		if part == "any" {
			wanted = s.cfg.Regions
		} else if a, ok := aliases[part]; ok {
			wanted = a
		}
		known := false
		for _, r := range wanted {
			if !slices.Contains(s.cfg.Regions, r) {
				continue
			}
			known = true
			if last = s.capacity(c, r); last == nil {
				return r, nil
			}
		}
		if !known {
			return "", fail(http.StatusBadRequest, "invalid_argument: region %.40q not found", part)
		}
	}
	return "", last
}

// presentImage makes sure that an image is there, if it is not to be pulled: then it returns nil.
func (s *Server) presentImage(ctx context.Context, ref string) (*imageInfo, error) {
	img, err := s.findImage(ctx, ref, false)
	switch {
	case errors.Is(err, errNoImage) && s.cfg.Pull:
		return nil, nil //nolint:nilnil // see above
	case errors.Is(err, errNoImage):
		return nil, ours("config.image: the engine has no image %.200q, and the emulator does not pull", ref)
	}
	return img, err
}

func get(c *call) (answer, error) {
	v := c.m.view()
	if c.m.lingers > 0 && v.State == stateDestroyed {
		c.m.lingers--
		v.State = stateDestroying
	}
	return ok(v)
}

// list lists the Machines of an app, without the destroyed ones unless they are asked for.
func list(c *call) (answer, error) {
	q := c.r.URL.Query()
	metadata := map[string]string{}
	var states []string
	all := false
	for k, values := range q {
		switch key, isMetadata := strings.CutPrefix(k, "metadata."); {
		case isMetadata:
			metadata[key] = values[0]
		case k == "state":
			for _, v := range values {
				states = append(states, strings.Split(v, ",")...)
			}
		case k == "include_deleted":
			all = values[0] == "true"
		case k == "region", k == "summary":
		default:
			return answer{}, ours("query: there is no parameter %.40q", k)
		}
	}
	found := []machineJSON{}
	for _, m := range c.app.machines {
		switch {
		case m.state == stateDestroyed && !all && !slices.Contains(states, stateDestroyed),
			len(states) > 0 && !slices.Contains(states, m.state),
			q.Get("region") != "" && q.Get("region") != m.region,
			!carries(m.cfg.Metadata, metadata):
			continue
		}
		v := m.view()
		if q.Get("summary") == "true" {
			v.Config, v.Events = nil, nil
		}
		found = append(found, v)
	}
	slices.SortFunc(found, func(a, b machineJSON) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	return ok(found)
}

// carries reports whether has has all of want.
func carries(has, want map[string]string) bool {
	for k, v := range want {
		if got, found := has[k]; !found || got != v {
			return false
		}
	}
	return true
}

// order changes the state and sends a command, if the Machine is in one of the given states. The
// caller holds Server.mu.
func (m *machine) order(c command, state, eventType string) error {
	select {
	case m.commands <- c:
	default:
		return errConcurrent()
	}
	if state != "" {
		m.set(state, eventType, "user", nil)
	}
	return nil
}

func start(c *call) (answer, error) {
	m := c.m
	before := m.state
	var err error
	switch m.state {
	case stateStopped, stateFailed:
		m.restarts = 0
		err = m.order(command{kind: doBoot}, stateStarting, "start")
	case stateSuspended:
		err = m.order(command{kind: doResume}, stateStarting, "start")
	case stateStarted, stateStarting:
	case stateStopping, stateSuspending:
		err = errStillActive()
	default:
		err = errState("start", m.state)
	}
	if err != nil {
		return answer{}, err
	}
	return ok(map[string]any{"previous_state": before, "migrated": false, "new_host": ""})
}

// stopOf reads how a Machine is to be stopped.
func (c *call) stopOf(signal, timeout string) (cmd command, err error) {
	cfg := c.m.cfg.StopConfig
	signal = cmp.Or(signal, cfg.Signal, "SIGTERM")
	if cmd.signal, err = parseSignal(signal); err != nil {
		return cmd, fail(http.StatusBadRequest, "invalid_argument: %v", err)
	}
	cmd.timeout = cfg.Timeout.Duration
	if timeout != "" {
		b, merr := json.Marshal(timeout)
		var d duration
		if err := errors.Join(merr, json.Unmarshal(b, &d)); err != nil {
			return cmd, fail(http.StatusBadRequest, "invalid_argument: timeout: %v", err)
		}
		if d.Duration > 0 {
			cmd.timeout = d.Duration
		}
	}
	return cmd, nil
}

// stopInput is the body of stop, if there is one.
type stopInput struct {
	ID      string   `json:"id"`
	Signal  string   `json:"signal"`
	Timeout duration `json:"timeout"`
}

func stop(_ context.Context, c *call, in *stopInput) (answer, error) {
	return c.change(func() (answer, error) {
		cmd, err := c.stopOf(in.Signal, in.Timeout.String())
		if err != nil {
			return answer{}, err
		}
		cmd.kind = doStop
		switch c.m.state {
		case stateStarted, stateStarting, stateSuspended, stateRestarting:
			return done(c.m.order(cmd, stateStopping, "stop"))
		case stateStopping, stateStopped:
			return okay()
		}
		return answer{}, errState("stop", c.m.state)
	})
}

func restart(c *call) (answer, error) {
	q := c.r.URL.Query()
	m := c.m
	timeout := q.Get("timeout")
	if n, err := strconv.ParseInt(timeout, 10, 32); err == nil {
		timeout = (time.Duration(n) * time.Second).String()
	}
	cmd, err := c.stopOf(q.Get("signal"), timeout)
	if err != nil {
		return answer{}, err
	}
	if q.Get("force_stop") == "true" {
		cmd.signal = 9
	}
	cmd.kind = doRestart
	switch m.state {
	case stateStarted, stateStopped, stateSuspended, stateFailed:
		m.restarts = 0
		return done(m.order(cmd, stateRestarting, "restart"))
	}
	return answer{}, errState("restart", m.state)
}

func suspend(c *call) (answer, error) {
	m := c.m
	if m.cfg.Guest.MemoryMB > 2048 || m.cfg.Init.SwapSizeMB > 0 {
		return answer{}, fail(http.StatusPreconditionFailed, "failed_precondition: machines with more than 2048 MB of memory or with swap cannot be suspended")
	}
	switch m.state {
	case stateStarted:
		return done(m.order(command{kind: doSuspend}, stateSuspending, "suspend"))
	case stateSuspending, stateSuspended:
		return okay()
	}
	return answer{}, errState("suspend", m.state)
}

// destroy removes a Machine. Clients say force or kill.
func destroy(c *call) (answer, error) {
	q := c.r.URL.Query()
	force := q.Get("force") == "true" || q.Get("kill") == "true"
	m := c.m
	switch err := m.mayChange(c); {
	case m.dead:
		return answer{}, err
	case m.state == stateDestroyed || m.state == stateDestroying:
	case !force && err != nil: // with force no lease counts
		return answer{}, err
	}
	switch m.state {
	case stateDestroyed, stateDestroying:
		return okay()
	case stateStopped, stateSuspended, stateFailed, stateCreated:
	default:
		if !force {
			return answer{}, fail(http.StatusPreconditionFailed, "failed_precondition: unable to destroy machine, not currently stopped or suspended")
		}
	}
	if err := m.order(command{kind: doDestroy, signal: 9}, stateDestroying, "destroy"); err != nil {
		return answer{}, err
	}
	m.interrupt()
	return okay()
}

// update replaces the whole configuration.
func update(ctx context.Context, c *call, in *createInput) (answer, error) {
	cfg, _, err := parseConfig(in.Config)
	if err != nil {
		return answer{}, err
	}
	info, err := c.s.presentImage(ctx, cfg.Image)
	if err != nil {
		return answer{}, err
	}
	return c.change(func() (answer, error) { return c.replace(in, cfg, info) })
}

// replace is update of a configuration that was read, with the image that it names.
func (c *call) replace(in *createInput, cfg machineConfig, info *imageInfo) (answer, error) {
	m := c.m
	if in.CurrentVersion != "" && in.CurrentVersion != m.instance {
		return answer{}, errConcurrent()
	}
	if in.Region != "" && in.Region != m.region {
		return answer{}, ours("region: a Machine stays in %s", m.region)
	}
	cmd, err := c.stopOf("", "")
	if err != nil {
		return answer{}, err
	}
	cmd.kind, cmd.next = doUpdate, &revision{launch: !in.SkipLaunch}
	switch m.state {
	case stateStarted, stateStopped, stateSuspended, stateFailed:
	case stateReplacing:
		return answer{}, errConcurrent()
	default:
		return answer{}, errState("update", m.state)
	}
	// The old container keeps running what it was made of; the new one is made of this.
	m.raw, m.cfg, m.image, m.instance, m.restarts = in.Config, cfg, reference(cfg.Image, info), newULID(time.Now()), 0
	if in.Name != "" {
		m.name = in.Name
	}
	m.versions = append([]version{{m.instance, in.Config}}, m.versions[:min(len(m.versions), 99)]...)
	if err := m.order(cmd, stateReplacing, "update"); err != nil {
		return answer{}, err
	}
	return ok(m.view())
}

func events(c *call) (answer, error) {
	n := keptEvents
	if v := c.r.URL.Query().Get("limit"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil || n < 1 || n > 50 {
			return answer{}, fail(http.StatusBadRequest, "invalid_argument: limit: want 1 to 50, not %.20q", v)
		}
	}
	return ok(slices.Clone(c.m.events[:min(n, len(c.m.events))]))
}

func versions(c *call) (answer, error) {
	return ok(slices.Clone(c.m.versions))
}

// cordon takes a Machine out of service, or puts it back.
func cordon(on bool) handler {
	return changing(func(c *call) (answer, error) {
		c.m.cordoned = on
		return okay()
	})
}

// mayChange refuses what a lease, a destroyed Machine or a dead host forbids. The caller holds
// Server.mu.
func (m *machine) mayChange(c *call) error {
	if m.dead {
		return fail(http.StatusRequestTimeout, "deadline_exceeded: host is unreachable")
	}
	if m.state == stateDestroyed || m.state == stateDestroying {
		return errState(string(c.op), m.state)
	}
	return m.leased(c)
}

// cloneMetadata is the metadata of a Machine for somebody who changes it.
func (m *machine) cloneMetadata() map[string]string {
	md := map[string]string{}
	maps.Copy(md, m.cfg.Metadata)
	return md
}
