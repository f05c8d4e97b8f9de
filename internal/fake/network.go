package fake

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// probeTimeout is how long a probe waits for an answer.
const probeTimeout = 5 * time.Second

// connect sends a line to a TCP address, if the policy of the sandbox allows that, and reports
// whether there was an answer. The connection is real.
func (e *execution) connect(address, line string) bool {
	return e.exchange("tcp", address, []byte(line+"\n"))
}

// query asks the DNS server at a UDP address for a name that begins with label.
func (e *execution) query(address, label string) bool {
	msg := binary.BigEndian.AppendUint16(nil, 1)                      // ID
	msg = append(msg, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(label))) // recursion desired, one question
	msg = append(append(msg, label...), "\x07invalid\x00\x00\x01\x00\x01"...)
	return e.exchange("udp", address, msg)
}

func (e *execution) exchange(network, address string, msg []byte) bool {
	if !e.box.allows(address) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	go func() { // ends with ctx
		select {
		case <-e.hard:
		case <-e.soft:
		case <-ctx.Done():
		}
		cancel()
	}()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		e.check()
		return false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(msg); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 512))
	e.check()
	return n > 0
}

// allows applies the network policy of the sandbox.
func (b *sandbox) allows(address string) bool {
	switch b.spec.Network.Mode {
	case executor.NetworkFull:
		return true
	case executor.NetworkAllowlist:
		host, _, err := net.SplitHostPort(address)
		return err == nil && slices.ContainsFunc(b.spec.Network.Hosts, func(h string) bool { return matchHost(h, host) })
	}
	return false
}

// matchHost reports whether an entry of an allow-list covers a host.
func matchHost(entry, host string) bool {
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		addr, err := netip.ParseAddr(host)
		return err == nil && prefix.Contains(addr)
	}
	if suffix, ok := strings.CutPrefix(entry, "*"); ok {
		return strings.HasSuffix(host, suffix)
	}
	return entry == host
}
