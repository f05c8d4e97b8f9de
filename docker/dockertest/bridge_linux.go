package dockertest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The addresses of engines: 128 networks of 4,094 containers each, out of those that RFC 1918
// leaves to everybody. dockerd's own choice begins at 172.17.0.0 and hardly ever comes here.
var (
	private  = netip.MustParsePrefix("172.24.0.0/13")
	netBits  = 20
	networks = 1 << (netBits - private.Bits())
)

// bridgeAddr begins the Ethernet address of a bridge. The rest is zero.
var bridgeAddr = [2]byte{0x02, 0x42}

// errNoNetwork says that all addresses are taken.
var errNoNetwork = fmt.Errorf("no free network within %s", private)

// bridgeName returns the name of the bridge of the engine in dir.
func bridgeName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("exb%x", sum[:5])
}

// addBridge makes the bridge of the engine in dir, unless it is there, and returns its name. An
// engine that uses docker0, as dockerd does by itself, gives its containers the addresses that
// another engine on the machine gives to its own: what connects to one reaches either.
func addBridge(dir string) (name string, err error) {
	name = bridgeName(dir)
	if i, err := net.InterfaceByName(name); err == nil {
		if as, err := i.Addrs(); err == nil && len(as) > 0 {
			return name, nil
		}
		if err := removeBridge(dir); err != nil {
			return "", err
		}
	}
	gateway, err := freeNetwork(name)
	if err != nil {
		return "", err
	}
	mask := net.CIDRMask(netBits, 32)
	err = configure(name,
		step{unix.SIOCBRADDBR, nil},
		step{unix.SIOCSIFHWADDR, hardwareAddr},
		step{unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(gateway.AsSlice()) }},
		step{unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask) }},
		step{unix.SIOCSIFFLAGS, flags(unix.IFF_UP)},
	)
	if err != nil {
		return "", errors.Join(fmt.Errorf("make the bridge %s at %s: %w", name, gateway, err), removeBridge(dir))
	}
	return name, nil
}

// removeBridge removes the bridge of the engine in dir. None is not an error.
func removeBridge(dir string) error {
	name := bridgeName(dir)
	if _, err := net.InterfaceByName(name); err != nil {
		return nil
	}
	return configure(name, step{unix.SIOCSIFFLAGS, flags(0)}, step{unix.SIOCBRDELBR, nil})
}

// step is a request about an interface.
type step struct {
	request uint
	set     func(*unix.Ifreq) error // what is asked for; nil: nothing but the interface
}

func flags(f uint16) func(*unix.Ifreq) error {
	return func(r *unix.Ifreq) error { r.SetUint16(f); return nil }
}

// hardwareAddr sets an Ethernet address, the same for all bridges, which never meet. A bridge
// without one of its own takes the lowest of its ports, and so changes it whenever a container
// comes or goes: the others still send to the old one, and their connections to this machine time
// out.
func hardwareAddr(r *unix.Ifreq) error {
	var b [4]byte // a family, and the beginning of an address that is not from a manufacturer
	binary.NativeEndian.PutUint16(b[:], unix.ARPHRD_ETHER)
	copy(b[2:], bridgeAddr[:])
	r.SetUint32(binary.NativeEndian.Uint32(b[:])) // the rest is zero
	return nil
}

// configure makes requests about an interface, up to the first that fails.
func configure(name string, steps ...step) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, s := range steps {
		r, err := unix.NewIfreq(name)
		if err == nil && s.set != nil {
			err = s.set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, s.request, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// freeNetwork returns the first address of a network that no interface of this machine is in. Where
// it begins to look depends on the name, so that an engine gets the same one whenever it is free.
func freeNetwork(name string) (netip.Addr, error) {
	used, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	sum := sha256.Sum256([]byte(name))
	first := int(binary.BigEndian.Uint32(sum[:4]) % uint32(networks))
	base := binary.BigEndian.Uint32(private.Addr().AsSlice())
	for i := range networks {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], base+uint32((first+i)%networks)<<(32-netBits))
		p := netip.PrefixFrom(netip.AddrFrom4(b), netBits)
		if !taken(p, used) {
			return p.Addr().Next(), nil
		}
	}
	return netip.Addr{}, errNoNetwork
}

// taken reports whether an interface has an address in p, or p an address in its network.
func taken(p netip.Prefix, used []net.Addr) bool {
	for _, a := range used {
		if o, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(o.Masked()) {
			return true
		}
	}
	return false
}
