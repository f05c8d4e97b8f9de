package dockertest

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Engines beside each other have networks of their own, and each the same one again.
func TestBridges(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes network interfaces")
	}
	runtime.LockOSThread() // for ever: the thread ends with the test, and its network with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	network := func(name string) netip.Prefix {
		i, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		as, err := i.Addrs()
		if err != nil || i.Flags&net.FlagUp == 0 {
			t.Fatalf("%v: got addresses %v, %v", i, as, err)
		}
		if want := "02:42:00:00:00:00"; i.HardwareAddr.String() != want {
			t.Fatalf("%s has the address %v, want %s: not one that its ports change", name, i.HardwareAddr, want)
		}
		for _, a := range as {
			if p := netip.MustParsePrefix(a.String()); p.Addr().Is4() {
				return p
			}
		}
		t.Fatalf("%v: got addresses %v", i, as)
		return netip.Prefix{}
	}
	made := map[netip.Prefix]string{}
	for range networks {
		dir := t.TempDir()
		name, err := addBridge(dir)
		if err != nil {
			t.Fatalf("%d engines: %v", len(made), err)
		}
		p := network(name)
		if other := made[p.Masked()]; other != "" || !private.Overlaps(p) {
			t.Errorf("got %s for %s and for %q", p, name, other)
		}
		made[p.Masked()] = name
		if again, err := addBridge(dir); err != nil || again != name || network(name) != p {
			t.Errorf("again: got %s, %v", again, err)
		}
	}
	if name, err := addBridge(t.TempDir()); err == nil {
		t.Errorf("got %s beside %d others", name, len(made))
	}
}

// A bridge is removed with its engine, and made again with the same address.
func TestBridgeIsRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes network interfaces")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var last []net.Addr
	for range 2 {
		name, err := addBridge(dir)
		if err != nil {
			t.Fatal(err)
		}
		i, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		as, err := i.Addrs()
		if err != nil || last != nil && as[0].String() != last[0].String() {
			t.Errorf("got %v, %v, want %v", as, err, last)
		}
		last = as
		if err := removeBridge(dir); err != nil {
			t.Error(err)
		}
		if _, err := net.InterfaceByName(name); err == nil {
			t.Errorf("%s is there", name)
		}
		if err := removeBridge(dir); err != nil {
			t.Errorf("again: %v", err)
		}
	}
}
