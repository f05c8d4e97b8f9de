package cases

import (
	"crypto/rand"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// networkCases are about what sandboxes reach. The suite listens, the program "connect" tries, and
// what the listeners heard decides.
func networkCases() []Case {
	mode := func(m executor.NetworkMode, hosts ...string) func(*executor.Spec) {
		return func(spec *executor.Spec) { spec.Network = executor.NetworkPolicy{Mode: m, Hosts: hosts} }
	}
	none := func(id, doc, kind string, v6 bool) Case {
		return Case{
			ID: "network/none-" + id, PerLanguage: true, Feature: executor.FeatureNetworkNone, Programs: []string{"connect"}, Doc: doc,
			Unsuited: func(executor.Capabilities) string {
				if v6 && !hasIPv6() {
					return "this machine has no IPv6"
				}
				return ""
			},
			Positive: func(t *T) {
				p := t.listen(kind, t.wide())
				if kind == "tcp" {
					p.only(v6)
				}
				if len(p.addr) == 0 {
					t.Abort("the suite cannot listen where it would hear the sandbox")
				}
				asked := t.Session(mode(executor.NetworkNone))
				usual := t.Shared()
				if t.Spec().Network.Mode != "" {
					usual = t.Session(mode(""))
				}
				for _, s := range []executor.Session{usual, asked} {
					noneOf(t, "reached by a sandbox without network", t.connects(s, p))
				}
			},
			Negative: func(t *T) {
				t.refusesSpec("no network", mode(executor.NetworkNone), executor.FeatureNetworkNone)
				t.refusesSpec("the zero policy", mode(""), executor.FeatureNetworkNone)
			},
		}
	}
	return []Case{
		{
			ID: "network/sockets", Feature: executor.FeatureCommand, Programs: []string{"command-sockets"},
			Doc:      "Programs can make no other sockets than those of the families UNIX, INET and INET6 and those of NETLINK for routes: network namespaces do not divide all of the others.",
			Positive: func(t *T) { t.says(t.Shared(), t.command("command-sockets"), "made") },
			Negative: noCommands,
			Unsuited: func(caps executor.Capabilities) string {
				if caps.Isolation == executor.IsolationProcess {
					return "the isolation of a process leaves the sockets of the host"
				}
				return ""
			},
		},
		none("ipv4", "Without a network no address of IPv4 is reached.", "tcp", false),
		none("ipv6", "Without a network no address of IPv6 is reached.", "tcp", true),
		none("dns", "Without a network no query of DNS reaches a server.", "udp", false),
		{
			ID: "network/full", PerLanguage: true, Feature: executor.FeatureNetworkFull, Programs: []string{"connect"},
			Doc: "With the full policy the same program reaches what it does not without a network.",
			Positive: func(t *T) {
				s := t.Session(mode(executor.NetworkFull))
				if heard := t.connects(s, t.listen("tcp", t.wide())); len(heard) == 0 {
					t.unreached()
				}
				if heard := t.connects(s, t.listen("udp", t.wide())); len(heard) == 0 {
					t.unreached()
				}
			},
			Negative: refusing("the full network", mode(executor.NetworkFull), executor.FeatureNetworkFull),
		},
		{
			ID: "network/allowlist", PerLanguage: true, Feature: executor.FeatureNetworkAllowlist, Programs: []string{"connect"}, Bound: 2 * time.Minute,
			Doc: "With an allow-list the addresses in it are reached and others are not.",
			Positive: func(t *T) {
				p := t.listen("tcp", t.wide())
				var all []string
				for _, a := range p.addr {
					all = append(all, a.Addr().String())
				}
				reached := t.connects(t.Session(mode(executor.NetworkAllowlist, all...)), p)
				if len(reached) == 0 {
					t.unreached()
				}
				one := reached[0]
				equalLists(t, "reached with only one address allowed", t.connects(t.Session(mode(executor.NetworkAllowlist, one.String())), p), []netip.Addr{one})
				equalLists(t, "reached with only the prefix of one address allowed", t.connects(t.Session(mode(executor.NetworkAllowlist, netip.PrefixFrom(one, one.BitLen()).String())), p), []netip.Addr{one})
				const nowhere = "198.51.100.7" // for documentation only
				noneOf(t, "reached with only "+nowhere+" allowed", t.connects(t.Session(mode(executor.NetworkAllowlist, nowhere)), p))
			},
			Negative: refusing("an allow-list", mode(executor.NetworkAllowlist, "example.org"), executor.FeatureNetworkAllowlist),
		},
	}
}

// connects lets the program "connect" try every address of p, and returns those at which it was
// heard.
func (t *T) connects(s executor.Session, p *probe) []netip.Addr {
	token := "probe" + strings.ToLower(rand.Text())
	at := map[string]string{"tcp": "", "udp": ""}
	at[p.kind] = strings.Join(p.addresses(), " ")
	// What it prints does not count: a sandbox may say anything.
	t.Run(s, t.Program("connect", "tcp", at["tcp"], "udp", at["udp"], "token", token))
	return p.by(token)
}

// unreached ends the case: whether the network is shut or only the suite is out of the sandbox's
// reach is not known.
func (t *T) unreached() {
	t.Abort("the sandbox does not reach this machine at %v, so that the suite cannot find out what it reaches", hostAddresses(t.wide()))
}

// hasIPv6 reports whether this machine has at least the loopback address of IPv6.
func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return false
	}
	return l.Close() == nil
}
