package flytest

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

type regionJSON struct {
	Code string `json:"code"`
	Name string `json:"name"`
}

func listRegions(_ context.Context, c *call) (answer, error) {
	found := []regionJSON{}
	for _, r := range c.s.cfg.Regions {
		found = append(found, regionJSON{r, r})
	}
	return ok(map[string]any{"Regions": found, "Nearest": c.s.cfg.Regions[0]})
}

// placement is in the form of the live API, which capitalizes here.
type placement struct {
	Region      string
	Count       int
	Concurrency int
}

// placementInput is the body of placements.
type placementInput struct {
	Org     string           `json:"org_slug"`
	Region  string           `json:"region"`
	Count   int              `json:"count"`
	Compute *guest           `json:"compute"`
	Volume  string           `json:"volume_name"`
	Bytes   uint64           `json:"volume_size_bytes"`
	Weights map[string]int64 `json:"weights"`
}

func placements(_ context.Context, c *call, in *placementInput) (answer, error) {
	if in.Org == "" {
		return answer{}, fail(http.StatusBadRequest, "org_slug is required")
	}
	c.s.mu.Lock()
	room := max(0, c.s.cfg.MaxMachines-c.s.living())
	c.s.mu.Unlock()
	if in.Count > 0 {
		room = min(room, in.Count)
	}
	found := []placement{}
	for _, r := range c.s.cfg.Regions {
		if in.Region == "" || in.Region == "any" || slices.Contains(strings.Split(in.Region, ","), r) {
			found = append(found, placement{r, room, room})
		}
	}
	return ok(map[string]any{"Regions": found})
}

// tokenInput is the body of deployToken.
type tokenInput struct {
	Expiry string `json:"expiry"`
}

// deployToken makes a token that is good for one app. It does not expire before the emulator ends.
func deployToken(_ context.Context, c *call, in *tokenInput) (answer, error) {
	if _, err := time.ParseDuration(in.Expiry); in.Expiry != "" && err != nil {
		return answer{}, fail(http.StatusBadRequest, "invalid_argument: expiry: %v", err)
	}
	t := token{value: "FlyV1 fm2_" + newToken() + ",fm2_" + newToken(), app: c.app.Name}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.tokens = append(c.s.tokens, t)
	return ok(map[string]string{"token": t.value})
}

type ipAssignment struct {
	IP          string `json:"ip"`
	Region      string `json:"region"`
	ServiceName string `json:"service_name"`
	Shared      bool   `json:"shared"`
	CreatedAt   string `json:"created_at"`
}

func listIPs(c *call) (answer, error) {
	return ok(map[string]any{"ips": append([]ipAssignment{}, c.app.ips...)})
}

// ipInput is the body of assignIP.
type ipInput struct {
	Type        string `json:"type"`
	Region      string `json:"region"`
	Org         string `json:"org_slug"`
	Network     string `json:"network"`
	ServiceName string `json:"service_name"`
}

// assignIP records an address. Nothing is reachable there: Server.Proxy is what takes its place.
func assignIP(_ context.Context, c *call, in *ipInput) (answer, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.serial++
	n := byte(c.s.serial)
	a := ipAssignment{Region: in.Region, ServiceName: in.ServiceName, CreatedAt: time.Now().UTC().Format(time.RFC3339)}
	switch in.Type {
	case "shared_v4", "v4": // addresses for documentation, RFC 5737 and 3849
		a.IP, a.Shared = netip.AddrFrom4([4]byte{192, 0, 2, n}).String(), in.Type == "shared_v4"
	case "v6":
		a.IP = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: n}).String()
	case "private_v6":
		a.IP = address(c.app.Name, c.s.serial)
	default:
		return answer{}, fail(http.StatusBadRequest, "invalid_argument: type: want shared_v4, v4, v6 or private_v6, not %.20q", in.Type)
	}
	if len(c.app.ips) >= 100 {
		return answer{}, ours("the app has 100 addresses")
	}
	c.app.ips = append(c.app.ips, a)
	return ok(a)
}

func deleteIP(c *call) (answer, error) {
	before := len(c.app.ips)
	c.app.ips = slices.DeleteFunc(c.app.ips, func(a ipAssignment) bool { return a.IP == c.r.PathValue("ip") })
	if len(c.app.ips) == before {
		return answer{}, fail(http.StatusNotFound, "not_found: ip assignment not found")
	}
	return answer{status: http.StatusNoContent}, nil
}

func listPolicies(_ context.Context, _ *call) (answer, error) { return ok([]any{}) }

// policyInput is the body of setPolicy.
type policyInput struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Selector map[string]any `json:"selector"`
	Rules    []any          `json:"rules"`
}

// setPolicy refuses every policy: a container cannot keep it, and a client that believed so would
// be less safe than it thinks.
func setPolicy(_ context.Context, c *call, in *policyInput) (answer, error) {
	if in.Name == "" {
		return answer{}, fail(http.StatusBadRequest, "name is required")
	}
	if _, apps := in.Selector["apps"]; apps {
		return answer{}, fail(http.StatusBadRequest, "apps array not currently supported in selectors")
	}
	return answer{}, ours("network policies are not enforced by the emulator, so it has none")
}

// noVolumes and noSecrets answer that there are none: clients ask before they do something else.
// None can be made.
func noVolumes(_ context.Context, _ *call) (answer, error) { return ok([]any{}) }

func noSecrets(_ context.Context, _ *call) (answer, error) {
	return ok(map[string]any{"secrets": []any{}})
}
