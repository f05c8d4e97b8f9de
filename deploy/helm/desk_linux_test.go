package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execbroker/execbroker/deploy/helm/helmtest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// desk is where a person works who may do everything in a cluster.
type desk struct {
	*testing.T
	cluster *kubetest.Cluster
	dir     string
	env     []string
}

// newDesk brings up a cluster whose node has the images of the guide.
func newDesk(t *testing.T) *desk {
	t.Helper()
	cache, err := kubetest.Dir()
	if err != nil {
		t.Fatal(err)
	}
	images, err := kubetest.EngineImages(t.Context(), dockertest.Python)
	if err != nil {
		t.Skip(err)
	}
	programs, err := kubetest.Build(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(static(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubetest.Start(t.Context(), kubetest.Options{
		Cache: cache, Programs: programs,
		Images: append(images, kubetest.ImageOf(serveImage, "usr/bin/execbroker", program)),
	})
	if errors.Is(err, kubetest.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	d := &desk{T: t, cluster: c, dir: t.TempDir()}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(d.dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	path := strings.Join([]string{filepath.Dir(helmtest.Program(t)), programs, os.Getenv("PATH")}, string(filepath.ListSeparator))
	d.env = helmtest.Environment(t, "PATH="+path, "KUBECONFIG="+c.Kubeconfig)
	return d
}

// write writes a file of the person.
func (d *desk) write(name, text string) {
	d.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644); err != nil {
		d.Fatal(err)
	}
}

// try runs commands in a shell, and ends what they leave in the background.
func (d *desk) try(commands string) (string, error) {
	cmd := exec.CommandContext(d.Context(), "sh", "-ec", "trap 'trap \"\" TERM; kill 0' EXIT\n"+commands)
	cmd.Dir, cmd.Env = d.dir, d.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return helmtest.Output(cmd)
}

// run runs commands that have to succeed.
func (d *desk) run(commands string) string {
	d.Helper()
	said, err := d.try(commands)
	if err != nil {
		for _, where := range []string{"execbroker", "execbroker-sandboxes", "apps"} {
			more, _ := d.try("kubectl -n " + where + " get pods,events -o wide; kubectl -n " + where + " logs --all-containers --prefix -l app.kubernetes.io/name=execbroker --tail 40")
			d.Logf("namespace %s:\n%s", where, more)
		}
		d.Fatalf("%v\n%s", err, said)
	}
	return said
}

// patience is how long the cluster may take for anything.
const patience = 3 * time.Minute

// until polls until a check does not fail.
func (d *desk) until(check func() error) error {
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// get reads an object of the API server.
func (d *desk) get(path string, into any) error {
	raw, err := d.cluster.Do(d.Context(), http.MethodGet, path, "")
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// reach lets pods reach a server of this machine, and returns the address that they use.
func (d *desk) reach(t *testing.T, url string) string {
	t.Helper()
	_, to, _ := strings.Cut(url, "://")
	to, _, _ = strings.Cut(to[strings.LastIndex(to, "@")+1:], "/")
	l, err := d.cluster.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.Close(); all.Wait() })
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { forward(ctx, from, to) })
		}
	})
	return l.Addr().String()
}

// forward connects a connection with a server until either ends, or ctx.
func forward(ctx context.Context, from net.Conn, to string) {
	defer from.Close()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); server.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, server}, {server, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// objects lists what is in the cluster, but for what the cluster itself writes all the time, and
// for kube-system, where controllers have accounts.
func (d *desk) objects() (map[string]bool, error) {
	text, err := d.try(`kinds=$(kubectl api-resources --verbs=list -o name | grep -v -e '^events' -e '^leases' -e '^componentstatuses' | paste -sd,)
kubectl get "$kinds" --all-namespaces -o jsonpath='{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\n"}{end}'`)
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.Contains(line, " kube-system/") {
			all[line] = true
		}
	}
	return all, err
}

// settled is objects when each namespace has what the cluster puts there.
func (d *desk) settled() (all map[string]bool) {
	d.Helper()
	if err := d.until(func() (err error) {
		if all, err = d.objects(); err != nil {
			return err
		}
		for o := range all {
			if name, ok := strings.CutPrefix(o, "Namespace /"); ok && name != "kube-system" && !(all["ServiceAccount "+name+"/default"] && all["ConfigMap "+name+"/kube-root-ca.crt"]) {
				return fmt.Errorf("namespace %s is not complete", name)
			}
		}
		return nil
	}); err != nil {
		d.Fatal(err)
	}
	return all
}

// gone waits until nothing is there that was not there before.
func (d *desk) gone(before map[string]bool, what string) {
	d.Helper()
	if err := d.until(func() error {
		now, err := d.objects()
		if err != nil {
			return err
		}
		var left []string
		for o := range now {
			if !before[o] {
				left = append(left, o)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%s leaves %q", what, left)
		}
		return nil
	}); err != nil {
		d.Error(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
