package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/attempttest"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// clusterTest is a test on a cluster that it shares with others. They take turns.
type clusterTest struct {
	name string
	do   func(*testing.T, *kubetest.Cluster)
}

func onCluster(t *testing.T, tests []clusterTest) {
	t.Helper()
	c := testCluster(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.do(t, c) })
	}
}

// TestCluster is what only a real cluster shows: what code finds in a pod, rights and policies.
func TestCluster(t *testing.T) {
	onCluster(t, []clusterTest{
		{"hardening", testHardening},
		{"refusals", testRefusals},
		{"rights", testRights},
		{"doctor", testDoctor},
		{"replicas", testReplicas},
		{"deleted", testDeleted},
		{"policy", testPolicy},
		{"others-are-made", testOthersAreMade},
		{"bounds", testBounds},
	})
}

// TestClusterFaults is the same for faults, and what is left at the node.
func TestClusterFaults(t *testing.T) {
	onCluster(t, []clusterTest{
		{"drained", testDrained},
		{"taint", testTaint},
		{"api-server", testAPIServer},
		{"outage", testOutage},
		{"sweep", testSweep},
		{"lives", testLives},
	})
}

// namespace makes a namespace for a test and checks at its end that no pod is left in it.
func namespace(t testing.TB, c *kubetest.Cluster) string {
	t.Helper()
	name, err := c.NewNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var left []string
		err := untilOK(context.Background(), func() error {
			if left = pods(t, c, name); len(left) > 0 {
				return errors.New("pods are left")
			}
			return nil
		})
		if err != nil {
			t.Errorf("%v: %q", err, left)
		}
	})
	return name
}

// pods returns the names of the pods in a namespace.
func pods(t testing.TB, c *kubetest.Cluster, namespace string) (names []string) {
	t.Helper()
	raw, err := c.Do(context.Background(), http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods", "")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		names = append(names, p.Metadata.Name)
	}
	return names
}

// apply makes an object.
func apply(t *testing.T, c *kubetest.Cluster, path, object string) []byte {
	t.Helper()
	answer, err := c.Do(t.Context(), http.MethodPost, path, object)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// open opens a backend.
func open(t testing.TB, cfg Config) executor.Executor {
	t.Helper()
	x, err := Open(t.Context(), driver.Env{Owner: "tests"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// create makes a session that ends with the test.
func create(t testing.TB, x executor.Executor, spec executor.Spec) executor.Session {
	t.Helper()
	s, err := x.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // again, in some tests
	return s
}

// run runs Python and returns what it printed.
func run(t testing.TB, s executor.Session, code string) string {
	t.Helper()
	res, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: code}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != executor.StatusOK {
		t.Fatalf("got %+v", res)
	}
	return string(res.Stdout)
}

// attempts are made by the code of a session. Each prints its name if it succeeds.
const attempts = `
import os, socket
def attempt(name, f):
    try:
        if f() is not False:
            print(name)
    except Exception as e:
        pass
def write(path):
    with open(path, "a") as f:
        f.write("x")
def mount():
    import ctypes
    return ctypes.CDLL(None).mount(b"t", b"/mnt", b"tmpfs", 0, None) == 0
def status(key):
    return next(l.split()[1] for l in open("/proc/self/status") if l.startswith(key + ":"))
attempt("root", lambda: os.getuid() == 0 or os.setuid(0))
attempt("termination-log", lambda: write("/dev/termination-log"))
for path in "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/usr/x", "/run/nscd/x", "/x":
    attempt(path, lambda: write(path))
attempt("token", lambda: os.path.exists("/var/run/secrets/kubernetes.io"))
attempt("kubernetes variables", lambda: any("KUBERNETES" in k for k in os.environ))
attempt("capabilities", lambda: int(status("CapPrm"), 16) | int(status("CapEff"), 16) or False)
attempt("new privileges", lambda: status("NoNewPrivs") == "0")
attempt("no filter", lambda: status("Seccomp") != "2")
attempt("mount", mount)
attempt("unshare", lambda: os.unshare(os.CLONE_NEWUSER))
attempt("start socket", lambda: socket.socket(socket.AF_UNIX).connect("\0execbroker-start"))
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) and None)
attempt("packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) and None)
def attach():
    import ctypes, struct
    one = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    socket.socket(socket.AF_UNIX).setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(one)))
attempt("socket filter", attach)
attempt("huge pages", lambda: os.close(os.memfd_create("x", 4)))
up = [n for _, n in socket.if_nameindex() if int(open("/sys/class/net/%s/flags" % n).read(), 16) & 1]
attempt("interfaces", lambda: up != ["lo"])
for address in TARGETS:
    attempt("connect " + address[0], lambda: socket.create_connection(address, 2))
attempt("signal supervisor", lambda: os.kill(1, 0))
print("done")
`

// testHardening lets code try what a pod of Kubernetes' own making would let it do.
func testHardening(t *testing.T, c *kubetest.Cluster) {
	cfg := testConfig(c.Kubeconfig, namespace(t, c))
	cfg.AllowClusterNetwork = true
	x := open(t, cfg)
	targets := fmt.Sprintf("[(%q, 443), (%q, 443), (%q, 10250)]", "10.98.0.2", "10.96.0.1", "10.98.0.2")
	code := strings.ReplaceAll(attempts, "TARGETS", targets)
	if got := run(t, create(t, x, executor.Spec{}), code); got != "done\n" {
		t.Errorf("without network code succeeds with:\n%s", got)
	}
	full := executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}
	if got := run(t, create(t, x, full), code); !strings.Contains(got, "connect 10.98.0.2\n") || !strings.Contains(got, "interfaces\n") {
		t.Errorf("with the full network the same code does not reach the API server; the attempts show nothing:\n%s", got)
	}
}

// testOthersAreMade: what one pod takes of the node's kernel stops no other from being made.
func testOthersAreMade(t *testing.T, c *kubetest.Cluster) {
	attempttest.Beside(t, open(t, testConfig(c.Kubeconfig, namespace(t, c))))
}

// testBounds: nor does what it takes of tables that are one for the whole node, up to a quarter.
func testBounds(t *testing.T, c *kubetest.Cluster) {
	attempttest.Bounds(t, open(t, testConfig(c.Kubeconfig, namespace(t, c))), filepath.Dir(c.Kubeconfig))
}

// testRefusals makes pods that the cluster does not take or start: each is refused with its kind,
// and nothing is left.
func testRefusals(t *testing.T, c *kubetest.Cluster) {
	limited := namespace(t, c)
	apply(t, c, "/api/v1/namespaces/"+limited+"/resourcequotas", `{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: "0"}}}`)
	baseline := namespace(t, c)
	if _, err := c.Do(t.Context(), http.MethodPatch, "/api/v1/namespaces/"+baseline, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}`); err != nil {
		t.Fatal(err)
	}
	if err := untilOK(t.Context(), func() error { // the controller of quotas counts first
		raw, err := c.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+limited+"/resourcequotas/none", "")
		if err == nil && !strings.Contains(string(raw), `"used"`) {
			err = errors.New("the quota is not in force")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	plain := namespace(t, c)
	for name, test := range map[string]struct {
		edit func(*Config)
		kind error
		says string
	}{
		"quota":        {func(cfg *Config) { cfg.Namespace = limited }, executor.ErrExhausted, "exceeded quota"},
		"pod-security": {func(cfg *Config) { cfg.Namespace = baseline }, executor.ErrUnsupported, "PodSecurity"},
		"no-namespace": {func(cfg *Config) { cfg.Namespace = "not-there" }, executor.ErrUnavailable, "not-there"},
		"no-image":     {func(cfg *Config) { cfg.Image = "example.org/not-there:1" }, executor.ErrUnavailable, "example.org/not-there:1"},
		"bad-image":    {func(cfg *Config) { cfg.Image = "example.org/Bad Name"[:15] + "::" }, executor.ErrInvalid, "InvalidImageName"},
		"no-python":    {func(cfg *Config) { cfg.Image = dockertest.NoPython }, executor.ErrUnsupported, "python3"},
		"no-class":     {func(cfg *Config) { cfg.RuntimeClass = "kata-not-there" }, executor.ErrAuth, "kata-not-there"},
		"unschedulable": {func(cfg *Config) {
			cfg.Requests, cfg.Limits.CPUs, cfg.ScheduleTimeout = 1, 500, driver.Duration(2*time.Second)
		}, executor.ErrExhausted, "Insufficient cpu"},
		"no-node": {func(cfg *Config) {
			cfg.NodeSelector, cfg.ScheduleTimeout = map[string]string{"a": "b"}, driver.Duration(time.Second)
		}, executor.ErrExhausted, "node"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(c.Kubeconfig, plain)
			test.edit(&cfg)
			s, err := open(t, cfg).Create(t.Context(), executor.Spec{})
			if err == nil {
				s.Close()
				t.Fatal("created")
			}
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v with %q", err, test.kind, test.says)
			}
			var e *executor.Error
			if !errors.As(err, &e) || e.Ran != executor.RanNo {
				t.Errorf("got %+v, want one that says that nothing ran", e)
			}
		})
	}
}

// account makes what RBAC prints, and returns the configuration of a program that has it.
func account(t *testing.T, c *kubetest.Cluster, namespace string, mode NetworkMode) Config {
	t.Helper()
	text, err := RBAC(namespace, "program", mode)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]string{
		"ServiceAccount": "/api/v1/namespaces/" + namespace + "/serviceaccounts",
		"Role":           "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles",
		"RoleBinding":    "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/rolebindings",
	}
	for _, object := range strings.Split(text, "---\n") {
		for kind, path := range at {
			if strings.Contains(object, "\nkind: "+kind+"\n") {
				apply(t, c, path, object)
			}
		}
	}
	return withToken(t, c, namespace, "program")
}

// withToken returns the configuration of a program with a token of an account.
func withToken(t *testing.T, c *kubetest.Cluster, namespace, name string) Config {
	t.Helper()
	raw := apply(t, c, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name+"/token", `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {}}`)
	var answer struct{ Status struct{ Token string } }
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(answer.Status.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig("", namespace)
	cfg.Server, cfg.CA, cfg.Token = "https://10.98.0.2", filepath.Join(filepath.Dir(c.Kubeconfig), "ca.crt"), driver.Secret{File: file}
	return cfg
}

// testRights runs a whole session with the rights that RBAC prints, and nothing without.
func testRights(t *testing.T, c *kubetest.Cluster) {
	ns := namespace(t, c)
	cfg := account(t, c, ns, NetworkInterface)
	x := open(t, cfg)
	s := create(t, x, executor.Spec{})
	if got := run(t, s, "print(6*7)"); got != "42\n" {
		t.Errorf("got %q", got)
	}
	again, err := open(t, cfg).Attach(t.Context(), s.Info().Handle)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, again, "print(1)"); got != "1\n" {
		t.Errorf("got %q", got)
	}
	if at, err := open(t, cfg).LastContact(t.Context(), s.Info().Handle); err != nil || at.After(time.Now()) {
		t.Errorf("last contact: got %v, %v", at, err)
	}
	listed := 0
	for _, err := range x.Sessions(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		listed++
	}
	if listed != 1 {
		t.Errorf("%d sessions are listed", listed)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	_, err = open(t, withToken(t, c, ns, "default")).Create(t.Context(), executor.Spec{})
	if !errors.Is(err, executor.ErrAuth) || !strings.Contains(err.Error(), "execbroker kubernetes rbac") {
		t.Errorf("without rights: got %v", err)
	}
	token, err := os.ReadFile(cfg.Token.File)
	if err != nil {
		t.Fatal(err)
	}
	put := func(token []byte) {
		if err := os.WriteFile(cfg.Token.File, token, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("nonsense"))
	if _, err := x.Create(t.Context(), executor.Spec{}); !errors.Is(err, executor.ErrAuth) {
		t.Errorf("with a wrong token: got %v", err)
	}
	put(token) // a new one is read
}

// testDoctor examines a namespace that is right, and others.
func testDoctor(t *testing.T, c *kubetest.Cluster) {
	ns := namespace(t, c)
	cfg := account(t, c, ns, NetworkInterface)
	failed := func(cfg Config) (names []string) {
		for _, check := range Doctor(t.Context(), driver.Env{Owner: "tests"}, cfg) {
			if !check.OK {
				names = append(names, check.Name)
				t.Logf("%s: %s; %s", check.Name, check.Detail, check.Fix)
			}
		}
		return names
	}
	if got := failed(cfg); len(got) > 0 {
		t.Errorf("got %q", got)
	}
	if got := failed(withToken(t, c, ns, "default")); !slices.Equal(got, []string{"rights"}) {
		t.Errorf("without rights: got %q", got)
	}
	missing := testConfig(c.Kubeconfig, "not-there")
	if got := failed(missing); !slices.Equal(got, []string{"admission"}) {
		t.Errorf("without the namespace: got %q", got)
	}
	if _, err := c.Do(t.Context(), http.MethodPatch, "/api/v1/namespaces/"+ns, `{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}`); err != nil {
		t.Fatal(err)
	}
	if got := failed(cfg); !slices.Equal(got, []string{"admission"}) {
		t.Errorf("with Pod Security: got %q", got)
	}
}

// testDeleted deletes a pod during a run.
func testDeleted(t *testing.T, c *kubetest.Cluster) {
	ns := namespace(t, c)
	s := create(t, open(t, testConfig(c.Kubeconfig, ns)), executor.Spec{})
	begun := false
	res, err := s.Run(t.Context(), executor.Request{
		Language: executor.Python, Code: "import time\nprint(1, flush=True)\ntime.sleep(60)",
	}, func(e executor.Event) error {
		if e.Kind == executor.EventStdout && !begun {
			begun = true
			_, err := c.Do(t.Context(), http.MethodDelete, "/api/v1/namespaces/"+ns+"/pods/"+pods(t, c, ns)[0]+"?gracePeriodSeconds=1", "")
			return err
		}
		return nil
	})
	if err != nil || res.Reason != executor.ReasonLifetime {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("afterwards: got %v", err)
	}
}

// testAPIServer kills the API server during a run: that is lost, and the session goes on.
func testAPIServer(t *testing.T, c *kubetest.Cluster) {
	s := create(t, open(t, testConfig(c.Kubeconfig, namespace(t, c))), executor.Spec{})
	run(t, s, "kept = 42")
	killed := false
	res, err := s.Run(t.Context(), executor.Request{
		Language: executor.Python, Code: "import time\nprint(1, flush=True)\ntime.sleep(2)\nlate = 1",
	}, func(e executor.Event) error {
		if e.Kind == executor.EventStdout && !killed {
			killed = true
			return errors.Join(c.Kill(kubetest.APIServer), c.StartAPIServer(t.Context()))
		}
		return nil
	})
	var e *executor.Error
	if !errors.As(err, &e) || e.Ran == executor.RanNo {
		t.Errorf("got %+v, %v; want an error that says that it may have run", res, err)
	}
	// The code of the lost run goes on, maybe for longer than the API server is away.
	if err := untilOK(t.Context(), func() error {
		_, err := s.Run(t.Context(), executor.Request{Language: executor.Python, Code: "late"}, nil)
		if err != nil && !errors.Is(err, executor.ErrBusy) {
			t.Fatal(err)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got := run(t, s, "print(kept, late)"); got != "42 1\n" {
		t.Errorf("got %q", got)
	}
	if err := errors.Join(c.Kill(kubetest.Kubelet), c.StartKubelet(t.Context())); err != nil {
		t.Fatal(err)
	}
	// The new one does not know its pods yet, and says that they do not exist.
	if got := run(t, s, "print(kept + 1)"); got != "43\n" {
		t.Errorf("after the kubelet was killed: got %q", got)
	}
}

// testSweep lets a session end by its idle TTL: its pod is swept when it is old.
func testSweep(t *testing.T, c *kubetest.Cluster) {
	ns := namespace(t, c)
	cfg := testConfig(c.Kubeconfig, ns)
	x := open(t, cfg)
	s, err := x.Create(t.Context(), executor.Spec{IdleTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := untilOK(t.Context(), func() error {
		raw, err := c.Do(t.Context(), http.MethodGet, "/api/v1/namespaces/"+ns+"/pods", "")
		if err == nil && !strings.Contains(string(raw), `"phase":"Succeeded"`) {
			err = errors.New("the pod has not ended")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b, err := newBackend(driver.Env{Owner: "tests"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.sweepNow(t.Context(), time.Now()); err != nil || len(pods(t, c, ns)) != 1 {
		t.Errorf("a pod that has just ended was swept: %v", err)
	}
	if err := b.sweepNow(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	} // namespace sees whether it is gone
}

// lives is how many sessions testLives makes, some at a time.
const lives, atOnce = 500, 5

// testLives makes and ends sessions, every fifth by the end of its holder: nothing is left in the
// API and at the node.
func testLives(t *testing.T, c *kubetest.Cluster) {
	before, err := c.Groups()
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(c.Kubeconfig, namespace(t, c))
	t.Run("sessions", func(t *testing.T) {
		x := open(t, cfg)
		for range atOnce {
			t.Run("some", func(t *testing.T) {
				t.Parallel()
				for i := range lives / atOnce {
					live(t, x, i)
				}
			})
		}
	})
	b, err := newBackend(driver.Env{Owner: "tests"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	left, err := leftAt(t.Context(), b, c.Containers)
	if err != nil || len(left) > 0 {
		t.Errorf("containers are left: %q, %v", left, err)
	}
	if left := pods(t, c, cfg.Namespace); len(left) > 0 {
		t.Errorf("pods are left: %q", left)
	}
	if err := untilOK(t.Context(), func() error {
		after, err := c.Groups()
		if err == nil && len(after) > len(before) {
			err = fmt.Errorf("control groups are left: %d, before %d", len(after), len(before))
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// live is one session of testLives.
func live(t *testing.T, x executor.Executor, i int) {
	t.Helper()
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, s, fmt.Sprintf("print(%d)", i)); got != fmt.Sprintln(i) {
		t.Errorf("got %q", got)
	}
	end := s.Close
	if i%5 == 4 {
		end = s.Detach
		if _, err := s.KeepAlive(t.Context(), 2*time.Second); err != nil {
			t.Error(err)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// testReplicas shares sessions between two programs: each finds what the other has made, with its
// state, and the one that has lost a session is told so.
func testReplicas(t *testing.T, c *kubetest.Cluster) {
	cfg := account(t, c, namespace(t, c), NetworkInterface)
	one, two := open(t, cfg), open(t, cfg)
	first := create(t, one, executor.Spec{})
	run(t, first, "shared = [1]")
	handle := first.Info().Handle
	handle.Fence++ // as a store of sessions counts holders
	second, err := two.Attach(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, second, "shared.append(2)\nprint(shared)"); got != "[1, 2]\n" {
		t.Errorf("got %q", got)
	}
	if _, err := first.Run(t.Context(), executor.Request{Language: executor.Python, Code: "1"}, nil); !errors.Is(err, executor.ErrClosed) {
		t.Errorf("who has lost it: got %v", err)
	}
	for _, x := range []executor.Executor{one, two} {
		var listed []string
		for info, err := range x.Sessions(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, info.Handle.Session)
		}
		if !slices.Equal(listed, []string{first.Info().Handle.Session}) {
			t.Errorf("got %q", listed)
		}
	}
	handle.Fence++
	again, err := one.Attach(t.Context(), handle)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, again, "print(shared)"); got != "[1, 2]\n" {
		t.Errorf("got %q", got)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := two.Attach(t.Context(), first.Info().Handle); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("once it is closed: got %v", err)
	}
}
