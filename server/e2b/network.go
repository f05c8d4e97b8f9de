package e2b

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/narrow"
)

// says reports whether a field that is not supported has a value that asks for something.
func says(m json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "{}", "[]", "false"}, strings.TrimSpace(string(m)))
}

// everything is how clients write all addresses.
var everything = []string{"0.0.0.0/0"}

// egress returns the egress policy of a sandbox. Without a list it is that of the configuration, or
// none if the client wants none. Many SDKs send allow_internet_access: true for programs that say
// nothing about it, so true means no more than nothing.
//
// The contract has no list of what is denied, so denyOut may only name all addresses: together with
// allowOut that is an allow-list.
func (s *Server) egress(n newSandbox) (executor.NetworkPolicy, error) {
	off := n.AllowInternetAccess != nil && !*n.AllowInternetAccess
	none := executor.NetworkPolicy{Mode: executor.NetworkNone}
	var w network
	if n.Network != nil {
		w = *n.Network
	}
	if says(w.EgressProxy) || says(w.Rules) || w.MaskRequestHost != "" || len(w.HTTPSPorts) > 0 {
		return none, unsupported("network: egressProxy, rules, maskRequestHost and httpsPorts")
	}
	allows, denies := len(w.AllowOut) > 0, len(w.DenyOut) > 0
	switch all := slices.Equal(w.DenyOut, everything); {
	case !allows && !denies && !off:
		if n.AllowInternetAccess != nil {
			s.wish(n.TemplateID)
		}
		return s.cfg.Spec.Network, nil
	case !allows && (all || !denies):
		return none, nil
	case allows && off:
		return none, unsupported("network: allowOut together with allowInternetAccess: false")
	case !all:
		return none, unsupported(`network: denyOut other than ["0.0.0.0/0"], and allowOut without it`)
	}
	most := executor.Spec{Network: executor.NetworkPolicy{Mode: s.cfg.MaxNetwork}}
	spec, err := narrow.Spec(most, executor.Capabilities{}, narrow.Ask{Network: &executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: w.AllowOut}})
	if err != nil {
		return none, refuse(http.StatusForbidden, "this server gives no network to sandboxes that ask for one: leave out network.allowOut")
	}
	return spec.Network, nil
}

// wish logs once for each template that the configuration gives less than the internet to programs
// that want it, or whose SDK says so.
func (s *Server) wish(template string) {
	if s.cfg.Spec.Network.Mode == executor.NetworkFull {
		return
	}
	if _, said := s.wishes.LoadOrStore(template, true); !said {
		s.cfg.Log.Warn("allowInternetAccess: true gives sandboxes no network: the configuration of the server does", "template", template)
	}
}

// describe tells a client what its sandbox may reach.
func (d *sandboxDetail) describe(p executor.NetworkPolicy) {
	internet := p.Mode == executor.NetworkFull
	d.AllowInternetAccess = &internet
	if p.Mode == executor.NetworkAllowlist {
		d.Network = &network{AllowOut: p.Hosts, DenyOut: everything}
	}
}
