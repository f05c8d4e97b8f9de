package flytest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"
)

// The states of a Machine.
const (
	stateCreated    = "created"
	stateStarting   = "starting"
	stateStarted    = "started"
	stateStopping   = "stopping"
	stateStopped    = "stopped"
	stateSuspending = "suspending"
	stateSuspended  = "suspended"
	stateRestarting = "restarting"
	stateReplacing  = "replacing"
	stateFailed     = "failed"
	stateDestroying = "destroying"
	stateDestroyed  = "destroyed"
)

// settled reports whether a Machine stays in a state until somebody or something does something.
func settled(state string) bool {
	switch state {
	case stateStarted, stateStopped, stateSuspended, stateFailed, stateDestroyed:
		return true
	}
	return false
}

// keptEvents is how many events a Machine has. Earlier ones are lost, as with Fly.
const keptEvents = 20

// keptDestroyed is how many destroyed Machines of an app can still be asked for.
const keptDestroyed = 1000

// app is an app with its Machines.
type app struct {
	App
	created  time.Time
	machines map[string]*machine
	gone     []string // destroyed Machines, oldest first
	ips      []ipAssignment
}

func newApp(a App) *app {
	a.Org = cmp.Or(a.Org, personal)
	return &app{App: a, created: time.Now(), machines: map[string]*machine{}}
}

// machine is one Machine. Its fields are guarded by Server.mu but for those of its own goroutine,
// which alone talks to the engine about its container.
type machine struct {
	s   *Server
	app *app

	// Set once.
	id      string
	address string // private_ip
	created time.Time

	name, region    string
	state           string
	instance        string // version
	versions        []version
	updated         time.Time
	raw             map[string]json.RawMessage // the configuration, verbatim
	cfg             machineConfig
	image           imageRef
	events          []event // newest first
	lease           *lease
	cordoned        bool
	dead            bool // its host cannot be reached
	container       string
	restarts        int
	waiters         []*waiter
	interrupt       context.CancelFunc // ends what its goroutine waits for
	unseen, lingers int                // switches
	oom             bool               // a test says that it ran out of memory

	commands chan command
	done     chan struct{} // closed when its goroutine has ended
}

// version is one configuration that a Machine has had.
type version struct {
	Version string                     `json:"version"`
	Config  map[string]json.RawMessage `json:"user_config"`
}

// waiter is a request that waits for a state.
type waiter struct {
	states  []string
	version string
	met     chan event // buffered; at most one
}

// meets reports whether w waits for what m is.
func (w *waiter) meets(m *machine) bool {
	if w.version != "" && w.version != m.instance {
		return false
	}
	return slices.Contains(w.states, m.state) || settled(m.state) && slices.Contains(w.states, "settled")
}

// set changes the state and says so to whom it concerns. The caller holds Server.mu.
func (m *machine) set(state, eventType, source string, request *eventRequest) {
	m.state, m.updated = state, time.Now()
	if eventType != "" {
		e := event{ID: newULID(m.updated), Type: eventType, Status: state, Source: source, Timestamp: m.updated.UnixMilli(), Request: request}
		m.events = slices.Insert(m.events, 0, e)
		m.events = m.events[:min(len(m.events), keptEvents)]
	}
	m.s.cfg.Log.Debug("machine", "app", m.app.Name, "id", m.id, "state", state)
	m.waiters = slices.DeleteFunc(m.waiters, func(w *waiter) bool {
		if !w.meets(m) {
			return false
		}
		w.met <- m.last()
		return true
	})
	if state == stateDestroyed {
		m.app.bury(m.id)
	}
}

// last is the newest event.
func (m *machine) last() event {
	if len(m.events) == 0 {
		return event{}
	}
	return m.events[0]
}

// bury keeps a destroyed Machine for those who ask for it later, and forgets older ones.
func (a *app) bury(id string) {
	a.gone = append(a.gone, id)
	for len(a.gone) > keptDestroyed {
		delete(a.machines, a.gone[0])
		a.gone = a.gone[1:]
	}
}

// view is what clients see. The caller holds Server.mu.
func (m *machine) view() machineJSON {
	v := machineJSON{
		ID: m.id, Name: m.name, State: m.state, Region: m.region, ImageRef: m.image, InstanceID: m.instance, PrivateIP: m.address,
		CreatedAt: m.created.UTC().Format(time.RFC3339), UpdatedAt: m.updated.UTC().Format(time.RFC3339),
		Config: m.raw, Events: slices.Clone(m.events), HostStatus: "ok", Cordoned: m.cordoned,
	}
	if m.dead {
		v.HostStatus, v.Config = "unreachable", nil
		v.IncompleteConfig = map[string]json.RawMessage{}
		for _, k := range []string{"image", "metadata", "guest"} {
			if raw, ok := m.raw[k]; ok {
				v.IncompleteConfig[k] = raw
			}
		}
	}
	return v
}

// setRaw replaces a key of the configuration, for clients that asked before to keep what they have.
func (m *machine) setRaw(key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		return // strings and maps of strings only
	}
	raw := make(map[string]json.RawMessage, len(m.raw)+1)
	maps.Copy(raw, m.raw)
	raw[key] = b
	m.raw = raw
}

// address returns an address in the form of Fly's private networks: those of one app share a
// prefix.
func address(app string, serial int64) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // it never fails
	sum := h.Sum32()
	return fmt.Sprintf("fdaa:%x:%x:a7b:%x:%x:%x:2", 1+sum>>28, 1+sum&0xfff, 1+sum>>16&0xff, 1+serial>>16&0xffff, 1+serial&0xffff)
}

// machineID returns an identifier of 14 hexadecimal digits.
func machineID(serial int64, salt uint64) string {
	return fmt.Sprintf("%04x%010x", salt&0xffff|0x1000, uint64(serial)&0xffffffffff)
}

// env is the environment of the guest. What the configuration says wins over what Fly adds.
func (m *machine) env() []string {
	vars := map[string]string{
		"FLY_APP_NAME": m.app.Name, "FLY_MACHINE_ID": m.id, "FLY_ALLOC_ID": m.id, "FLY_REGION": m.region, "PRIMARY_REGION": m.region,
		"FLY_PRIVATE_IP": m.address, "FLY_IMAGE_REF": m.cfg.Image, "FLY_MACHINE_VERSION": m.instance,
		"FLY_VM_MEMORY_MB": strconv.FormatInt(m.cfg.Guest.MemoryMB, 10),
	}
	if g := m.cfg.Metadata["fly_process_group"]; g != "" {
		vars["FLY_PROCESS_GROUP"] = g
	}
	maps.Copy(vars, m.cfg.Env)
	list := make([]string, 0, len(vars))
	for k, v := range vars {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}
