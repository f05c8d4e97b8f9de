package netnstest_test

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/execbroker/execbroker/internal/netnstest"
)

// A listener of a network is reached there, and from nowhere else.
func TestAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	var l net.Listener
	cmd := exec.Command("sleep", "60")
	err := netnstest.Alone(func() (err error) {
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	defer l.Close()
	dial := func() error {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := netnstest.Of(cmd.Process.Pid, dial); err != nil {
		t.Errorf("in its network: %v", err)
	}
	if dial() == nil {
		t.Error("it is reached from the network of the machine")
	}
}
