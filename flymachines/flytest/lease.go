package flytest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

const (
	leaseHeader  = "Fly-Machine-Lease-Nonce"
	defaultLease = 2 * time.Minute
	maxLease     = 24 * 60 * 60 // seconds
)

// lease lets one client change a Machine for a while.
type lease struct {
	nonce, owner, description, version string
	expires                            time.Time
}

type leaseData struct {
	Nonce       string `json:"nonce"`
	ExpiresAt   int64  `json:"expires_at"` // Unix seconds
	Owner       string `json:"owner"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

func (l *lease) view() map[string]any {
	return map[string]any{"status": "success", "data": leaseData{l.nonce, l.expires.Unix(), l.owner, l.description, l.version}}
}

func newLease(m *machine, seconds int, description string) *lease {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // it never fails
	return &lease{
		nonce: hex.EncodeToString(b), owner: "flytest@example.com", description: description, version: m.instance,
		expires: time.Now().Add(time.Duration(seconds) * time.Second),
	}
}

// current is the lease in force. The caller holds Server.mu.
func (m *machine) current() *lease {
	if m.lease != nil && time.Now().After(m.lease.expires) {
		m.lease = nil
	}
	return m.lease
}

// leased refuses a change by somebody who does not hold the lease in force. The caller holds
// Server.mu.
func (m *machine) leased(c *call) error {
	l := m.current()
	if l == nil || c.r.Header.Get(leaseHeader) == l.nonce {
		return nil
	}
	return errLeaseHeld(m.id, l.owner, l.expires.UTC().Format(time.RFC3339))
}

func findLease(c *call) (answer, error) {
	l := c.m.current()
	if l == nil {
		return answer{}, errNoLease()
	}
	return ok(l.view())
}

// leaseInput is the body of acquireLease, if there is one.
type leaseInput struct {
	TTL         int    `json:"ttl"`
	Description string `json:"description"`
}

// acquireLease gives a lease to who asks first, and prolongs it for who holds it. The time is in
// the body or in the query.
func acquireLease(_ context.Context, c *call, in *leaseInput) (answer, error) {
	if v := c.r.URL.Query().Get("ttl"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return answer{}, fail(http.StatusBadRequest, "invalid_argument: ttl: %.20q is not a number of seconds", v)
		}
		in.TTL = n
	}
	in.TTL = cmp.Or(in.TTL, int(defaultLease.Seconds()))
	if in.TTL < 1 || in.TTL > maxLease {
		return answer{}, fail(http.StatusBadRequest, "invalid_argument: ttl: want 1 to %d seconds, not %d", maxLease, in.TTL)
	}
	return c.change(func() (answer, error) {
		if l := c.m.current(); l != nil {
			l.expires = time.Now().Add(time.Duration(in.TTL) * time.Second)
		} else {
			c.m.lease = newLease(c.m, in.TTL, in.Description)
		}
		return answer{http.StatusCreated, c.m.lease.view()}, nil
	})
}

func releaseLease(c *call) (answer, error) {
	if c.m.current() == nil {
		return answer{}, errNoLease()
	}
	if err := c.m.leased(c); err != nil {
		return answer{}, err
	}
	c.m.lease = nil
	return ok(map[string]any{"status": "success", "data": map[string]bool{"ok": true}})
}

// setMetadata replaces the metadata in the configuration. The caller holds Server.mu.
func (m *machine) setMetadata(md map[string]string) {
	m.cfg.Metadata = md
	m.setRaw("metadata", md)
	m.updated = time.Now()
}

func getMetadata(c *call) (answer, error) {
	return ok(c.m.cloneMetadata())
}

func getMetadataKey(c *call) (answer, error) {
	v, found := c.m.cfg.Metadata[c.r.PathValue("key")]
	if !found {
		return answer{}, fail(http.StatusNotFound, "not_found: metadata key not found")
	}
	return ok(map[string]string{"value": v})
}

// metadataInput is the body of setMetadataKey.
type metadataInput struct {
	Value     string `json:"value"`
	UpdatedAt string `json:"updated_at"`
}

func setMetadataKey(_ context.Context, c *call, in *metadataInput) (answer, error) {
	return c.changeMetadata(func(md map[string]string) { md[c.r.PathValue("key")] = in.Value })
}

func deleteMetadataKey(_ context.Context, c *call) (answer, error) {
	return c.changeMetadata(func(md map[string]string) { delete(md, c.r.PathValue("key")) })
}

// mergeMetadata sets keys, and removes those that are null or empty. With a version it is a
// compare-and-swap.
func mergeMetadata(replace bool) handler {
	return func(_ context.Context, c *call) (answer, error) {
		var in struct {
			Metadata       map[string]*string `json:"metadata"`
			MachineVersion string             `json:"machine_version"`
			UpdatedAt      string             `json:"updated_at"`
		}
		if err := c.decode(&in); err != nil {
			return answer{}, err
		}
		c.s.mu.Lock()
		stale := in.MachineVersion != "" && in.MachineVersion != c.m.instance ||
			in.UpdatedAt != "" && in.UpdatedAt != c.m.updated.UTC().Format(time.RFC3339)
		c.s.mu.Unlock()
		if stale {
			return answer{}, fail(http.StatusPreconditionFailed, "failed_precondition: machine version mismatch")
		}
		return c.changeMetadata(func(md map[string]string) {
			if replace {
				clear(md)
			}
			for k, v := range in.Metadata {
				if v == nil || *v == "" {
					delete(md, k)
				} else {
					md[k] = *v
				}
			}
		})
	}
}

const maxMetadata = 64 << 10 // bytes of JSON

func (c *call) changeMetadata(edit func(map[string]string)) (answer, error) {
	return c.change(func() (answer, error) {
		md := c.m.cloneMetadata()
		edit(md)
		if b, err := json.Marshal(md); err != nil || len(b) > maxMetadata {
			return answer{}, ours("metadata: larger than %d bytes", maxMetadata)
		}
		c.m.setMetadata(md)
		return answer{status: http.StatusNoContent}, nil
	})
}
