package executor

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// NetworkMode says what a sandbox may reach.
type NetworkMode string

// The network modes. The zero NetworkPolicy means NetworkNone. It does not mean "the default of the
// backend", which would be the internet on one backend and nothing on another. A backend that
// cannot block egress refuses the zero Spec.
const (
	NetworkNone      NetworkMode = "none"      // requires FeatureNetworkNone
	NetworkAllowlist NetworkMode = "allowlist" // requires FeatureNetworkAllowlist
	NetworkFull      NetworkMode = "full"      // requires FeatureNetworkFull
)

// NetworkPolicy is the egress policy of a session.
type NetworkPolicy struct {
	Mode NetworkMode `json:"mode,omitempty"`
	// Hosts is for NetworkAllowlist only, which needs at least one: host names ("example.org"), all
	// names below one ("*.example.org"), IP addresses and CIDR blocks ("10.1.0.0/16"). Ports and
	// URLs are not allowed.
	Hosts []string `json:"hosts,omitempty"`
}

func (p NetworkPolicy) check(bad *invalid) {
	switch p.Mode {
	case NetworkAllowlist:
		if len(p.Hosts) == 0 {
			bad.add("network: an allow-list needs hosts; the mode for no network is %q", NetworkNone)
		}
		for _, h := range p.Hosts {
			if err := checkHost(h); err != nil {
				bad.add("network: host %q: %w", h, err)
			}
		}
	case "", NetworkNone, NetworkFull:
		if len(p.Hosts) > 0 {
			bad.add("network: hosts need mode %q", NetworkAllowlist)
		}
	default:
		bad.add("network: unknown mode %q", p.Mode)
	}
}

// checkHost accepts only forms that mean the same in the allow-list of every backend. It refuses
// forms that some resolvers take for an address, such as 127.1, and blocks with bits set behind the
// mask, because backends would read them differently.
func checkHost(h string) error {
	if strings.Contains(h, "/") {
		p, err := netip.ParsePrefix(h)
		if err != nil {
			return errors.New("not a CIDR block")
		}
		if p != p.Masked() {
			return fmt.Errorf("write the block as %s", p.Masked())
		}
		return nil
	}
	if a, err := netip.ParseAddr(h); err == nil {
		if a.Zone() != "" {
			return errors.New("an address cannot have a zone")
		}
		return nil
	}
	if strings.ContainsAny(h, ":[]") {
		return errors.New("not an address; ports are not part of a host")
	}
	name := strings.TrimPrefix(h, "*.")
	if len(name) > 253 {
		return errors.New("a host name has at most 253 bytes")
	}
	last := ""
	for last = range strings.SplitSeq(name, ".") {
		if !hostLabel.MatchString(last) {
			return errors.New("not a host name")
		}
	}
	if last[0] >= '0' && last[0] <= '9' {
		return errors.New("not an address, and a host name cannot end with a number")
	}
	return nil
}

// hostLabel reports whether s is one label of a host name, as in RFC 1123.
var hostLabel = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
