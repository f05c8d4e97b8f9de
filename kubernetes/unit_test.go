package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/handover"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/runner"
)

// TestConfig: every mistake is reported, with its path, and what is not built is refused by name.
func TestConfig(t *testing.T) {
	for text, want := range map[string][]string{
		`{"namespace":"a"}`: nil,
		`{}`:                {"namespace: is required"},
		`{"namespace":"A_b","image":"python","requests":2,"timeout":"-1s","pull":"often"}`: {
			`namespace: "A_b" is no name`, `image: "python" has no registry`, "requests: want a part", `timeout: `, `pull: `,
		},
		`{"namespace":"a","network":"policy"}`:                                           nil,
		`{"namespace":"a","policy_targets":["10.0.0.1:443"]}`:                            {"policy_targets: needs network"},
		`{"namespace":"a","network":"policy","policy_targets":["[::1]:1","host:443"]}`:   {"policy_targets[1]: want IP:PORT"},
		`{"namespace":"a","network":"none"}`:                                             {"network: "},
		`{"namespace":"a","claims":{},"service_port":1}`:                                 {"claims: ", "service_port: "},
		`{"namespace":"a","packages":{"allow":{"javascript":["ms"],"python":["-r x"]}}}`: {"packages: there are some of javascript", "packages.allow.python[0]: "},
		`{"namespace":"a","server":"http://x","ca":"/x"}`:                                {"server: want https://", "token: is required"},
		`{"namespace":"a","token":{"env":"X"}}`:                                          {"token: needs server"},
		`{"namespace":"a","in_cluster":true,"context":"x"}`:                              {"context: excludes in_cluster"},
		`{"namespace":"a","tolerations":[{"operator":"Exists","value":"x"},{}]}`:         {"tolerations[0]: value", "tolerations[1]: key"},
		`{"namespace":"a","runtime_class":"gvisor","limits":{"processes":3}}`:            {"limits: processes: gVisor"},
		`{"namespace":"a","seccomp":"../x","pull_secrets":["A b"]}`:                      {"seccomp: want a path", `pull_secrets[0]: "A b"`},
		`{"namespace":"a","templates":{"x":"short"},"languages":["cobol"]}`:              {`templates.x.image: "short"`, "languages[0]: "},
		`{"namespace":"a","host_network":true}`:                                          {"host_network"},
		`{"namespace":"a","image":"python","pull":"never","priority_class":"no class"}`:  {"priority_class: "},
	} {
		err := Factory().Check([]byte(text))
		if (err == nil) != (want == nil) {
			t.Errorf("%s: got %v", text, err)
		}
		for _, w := range want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: got %v, want %q", text, err, w)
			}
		}
	}
}

// testBox is a pod as a session without wishes has it.
func testBox(cfg *Config, network executor.NetworkMode) *box {
	return &box{
		cfg: cfg, id: strings.Repeat("a", 26), image: cfg.image(""), network: network, labels: map[string]string{driver.LabelOwner: "me"}, note: "note",
		want: cfg.limits(&executor.Spec{}), life: time.Hour, uid: cfg.userID("x"), command: []string{python, "-c", "runner"},
	}
}

// TestPod: what stops code is in the pod, whatever the configuration says.
func TestPod(t *testing.T) {
	for name, cfg := range map[string]*Config{
		"zero": {Namespace: "a"},
		"much": {
			Namespace: "a", Image: "example.org/x:1", RuntimeClass: "kata", UserNamespaces: true, NodeSelector: map[string]string{"a": "b"}, PullSecrets: []string{"s"},
			Tolerations: []Toleration{{Key: "k", Operator: "Exists"}}, PriorityClass: "p", Requests: 0.5, AllowClusterNetwork: true, AllowWeak: true, Ports: true,
		},
		"policy": {Namespace: "a", Network: NetworkPolicy},
	} {
		for _, network := range []executor.NetworkMode{executor.NetworkNone, executor.NetworkFull} {
			p := testBox(cfg, network).pod()
			s, c := p.Spec, p.Spec.Containers[0]
			x := c.SecurityContext
			switch {
			case len(s.Containers) != 1, len(s.InitContainers) > 0, s.HostNetwork, s.HostPID, s.HostIPC:
				t.Errorf("%s: it shares something of the node: %+v", name, s)
			case *s.AutomountServiceAccountToken, *s.EnableServiceLinks, s.RestartPolicy != corev1.RestartPolicyNever:
				t.Errorf("%s: it gets something of the cluster: %+v", name, s)
			case *x.Privileged, *x.AllowPrivilegeEscalation, !*x.ReadOnlyRootFilesystem, x.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
				t.Errorf("%s: it can do more than it needs: %+v", name, x)
			case s.ActiveDeadlineSeconds == nil, *s.ActiveDeadlineSeconds < 3600:
				t.Errorf("%s: its deadline is %v", name, s.ActiveDeadlineSeconds)
			}
			want := []corev1.Capability{"CHOWN", "KILL", "SETGID", "SETUID"}
			if network == executor.NetworkNone && name != "policy" {
				want = append(want, "NET_ADMIN")
			}
			if got := p.Labels[labelNetwork]; got != string(network) {
				t.Errorf("%s: policies find a pod of network %s by %q", name, network, got)
			}
			if !slices.Equal(x.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(x.Capabilities.Add, want) {
				t.Errorf("%s: got %+v", name, x.Capabilities)
			}
			if (network == executor.NetworkNone) != (s.DNSPolicy == corev1.DNSNone) {
				t.Errorf("%s, %s: DNS is %q", name, network, s.DNSPolicy)
			}
			for _, v := range s.Volumes {
				if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit.IsZero() {
					t.Errorf("%s: volume %s has no size, or is on the disk of the node", name, v.Name)
				}
			}
			memory := int64(0)
			for _, v := range s.Volumes {
				memory += v.EmptyDir.SizeLimit.Value()
			}
			if c.Resources.Limits.Memory().Value() < memory+defaultMemory || c.Resources.Limits.Cpu().IsZero() || c.Resources.Limits.StorageEphemeral().IsZero() {
				t.Errorf("%s: limits are %v", name, c.Resources.Limits)
			}
			if r, l := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value(); cfg.Requests == 0.5 && r != pages(l/2) || cfg.Requests == 0 && r != l {
				t.Errorf("%s: %d of %d bytes are requested", name, r, l)
			}
		}
	}
}

// TestErrors: what a cluster says becomes an error of its kind, and says what to do.
func TestErrors(t *testing.T) {
	api := &client{namespace: "boxes", from: "kubeconfig"}
	resource := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		kind error
		says string
	}{
		"rights":       {apierrors.NewForbidden(resource, "x", errors.New(`User "u" cannot create resource "pods"`)), executor.ErrAuth, "execbroker kubernetes rbac"},
		"quota":        {apierrors.NewForbidden(resource, "x", errors.New("exceeded quota: q, requested: pods=1")), executor.ErrExhausted, "quota"},
		"pod-security": {apierrors.NewForbidden(resource, "x", errors.New(`violates PodSecurity "baseline:latest"`)), executor.ErrUnsupported, "enforce"},
		"webhook":      {apierrors.NewBadRequest(`admission webhook "x.y" denied the request: no`), executor.ErrUnsupported, "x.y"},
		"expired":      {apierrors.NewUnauthorized("no"), executor.ErrAuth, "expired"},
		"gone":         {apierrors.NewNotFound(resource, "x"), executor.ErrNotFound, "x"},
		"namespace":    {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "boxes"), executor.ErrUnavailable, "namespace boxes"},
		"busy":         {apierrors.NewTooManyRequests("later", 3), executor.ErrExhausted, "busy"},
		"down":         {apierrors.NewServiceUnavailable("no"), executor.ErrUnavailable, "no"},
		"silent":       {errNoAnswer, executor.ErrUnavailable, "kubeconfig"},
		"token":        {fmt.Errorf("get: %w", &tokenError{errors.New("not set")}), executor.ErrAuth, "not set"},
	} {
		err := api.fail(t.Context(), test.err)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want %v with %q", name, err, test.kind, test.says)
		}
		var e *executor.Error
		if errors.As(err, &e) && name == "busy" && e.RetryAfter != 3*time.Second {
			t.Errorf("%s: got %v", name, e.RetryAfter)
		}
	}
}

// TestTerminationOf: how a pod has ended becomes a reason.
func TestTerminationOf(t *testing.T) {
	ended := func(reason string, code int32) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}}},
		}}
	}
	deadline := ended("Error", 137)
	deadline.Reason = "DeadlineExceeded"
	evicted := ended("Error", 137)
	evicted.Reason = "Evicted"
	for name, test := range map[string]struct {
		status corev1.PodStatus
		reason executor.Reason
	}{
		"clock":    {ended("Completed", 0), executor.ReasonLifetime},
		"memory":   {ended("OOMKilled", 137), executor.ReasonMemory},
		"failed":   {ended("Error", 1), executor.ReasonSandbox},
		"deadline": {deadline, executor.ReasonLifetime},
		"evicted":  {evicted, executor.ReasonSandbox},
		"node":     {ended("Unknown", 255), ""},
		"lost":     {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeLost"}, ""},
	} {
		pod := &corev1.Pod{Status: test.status}
		if !hasEnded(pod) {
			t.Errorf("%s: it has ended", name)
		}
		if got := terminationOf(pod); got.Reason != test.reason || !got.Ended {
			t.Errorf("%s: got %+v, want %q", name, got, test.reason)
		}
	}
	now := metav1.Now()
	if got := terminationOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}); got.Reason != executor.ReasonLifetime {
		t.Errorf("deleted: got %+v", got)
	}
}

// TestStartTimes: a node is asked when two of three pods have started, and neither at once nor
// never, whatever it is that is learned.
func TestStartTimes(t *testing.T) {
	var s startTimes
	for i := range 3000 { // from 300 to 900 ms
		took := 300*time.Millisecond + time.Duration(i*7919%600)*time.Millisecond
		s.learn(s.guess() >= took)
	}
	if g := s.guess(); g < 600*time.Millisecond || g > 800*time.Millisecond {
		t.Errorf("got %v, want 700ms", g)
	}
	for _, had := range []bool{true, false} {
		for range 1000 {
			s.learn(had)
		}
		if g := s.guess(); g < leastGuess || g > mostGuess {
			t.Errorf("got %v", g)
		}
	}
}

// TestRBAC: the role that is printed has the rights that doctor asks for.
func TestRBAC(t *testing.T) {
	text, err := RBAC("boxes", "program", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`resources: ["pods/exec"]`, `verbs: ["create", "delete", "get", "list", "watch"]`, "namespace: boxes", "name: program"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "*") {
		t.Errorf("a right of everything:\n%s", text)
	}
	for _, bad := range []string{"", "A", "a\nb: c"} {
		if _, err := RBAC(bad, "program", ""); err == nil {
			t.Errorf("namespace %q was taken", bad)
		}
	}
	policies, err := RBAC("boxes", "program", NetworkPolicy)
	if err != nil || !strings.Contains(policies, `resources: ["networkpolicies"]`) || !strings.Contains(policies, "enforce: baseline") || strings.Contains(text, "networkpolicies") {
		t.Errorf("got %v\n%s", err, policies)
	}
	if _, err := RBAC("boxes", "program", "no"); err == nil {
		t.Error("a mode that there is not was taken")
	}
}

// serve is an API server of one exec, which does what a test says.
func serve(t *testing.T, exec func(*websocket.Conn)) *client {
	t.Helper()
	up := websocket.Upgrader{Subprotocols: []string{protocol}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pod, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/boxes/pods/"); !ok || pod != "pod/exec" && pod != podName("there")+"/exec" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			json.NewEncoder(w).Encode(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "x").Status())
			return
		}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		exec(conn)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":%q}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`, s.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := newClient(&Config{Kubeconfig: file, Namespace: "boxes"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// TestStream carries bytes in both directions, keeps the end of standard error, and says how a
// process has ended.
func TestStream(t *testing.T) {
	status := func(s metav1.Status) []byte {
		b, err := json.Marshal(s)
		if err != nil {
			t.Error(err)
		}
		return append([]byte{channelStatus}, b...)
	}
	var got []byte
	c := serve(t, func(conn *websocket.Conn) {
		for len(got) < 100_000 {
			_, b, err := conn.ReadMessage()
			if err != nil || b[0] != channelIn || len(b) > maxMessage+1 {
				t.Errorf("got %d bytes, %v", len(b), err)
				return
			}
			got = append(got, b[1:]...)
		}
		conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelErr}, strings.Repeat("e", 2*keepStderr)+"end"...))
		conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelOut}, got...))
		conn.WriteMessage(websocket.BinaryMessage, []byte{channelOut})
		conn.WriteMessage(websocket.BinaryMessage, status(metav1.Status{Status: metav1.StatusSuccess}))
		conn.ReadMessage()
	})
	s, err := c.exec(t.Context(), "pod", []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sent := []byte(strings.Repeat("0123456789", 10_000))
	if _, err := s.Write(sent); err != nil {
		t.Fatal(err)
	}
	back, err := io.ReadAll(s)
	if err != nil || string(back) != string(sent) {
		t.Errorf("got %d bytes, %v", len(back), err)
	}
	if e := s.stderr(); len(e) > keepStderr || !strings.HasSuffix(string(s.err), "end") {
		t.Errorf("got %q of standard error", e)
	}
	select {
	case <-s.over:
	default:
		t.Error("the process has ended, and nobody knows")
	}
}

// TestStreamEnds: a process that was not started, one that has failed, and an API server that
// breaks the protocol or the connection.
func TestStreamEnds(t *testing.T) {
	for name, test := range map[string]struct {
		message          string
		notStarted, over bool
	}{
		"early":    {"\x03" + `{"status":"Failure","reason":"InternalError","message":"container not found"}`, true, false},
		"failed":   {"\x03" + `{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated with exit code 1"}`, false, true},
		"nonsense": {"\x03nonsense", false, false},
		"channel":  {"\x09x", false, false},
		"empty":    {"", false, false},
		"cut":      {"\x01", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(conn *websocket.Conn) { conn.WriteMessage(websocket.BinaryMessage, []byte(test.message)) })
			s, err := c.exec(t.Context(), "pod", []string{"x"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.Read(make([]byte, 10))
			var e *exitError
			if err == nil || err == io.EOF || (errors.As(err, &e) && e.notStarted()) != test.notStarted {
				t.Errorf("got %v", err)
			}
			over := false
			select {
			case <-s.over:
				over = true
			default:
			}
			if over != test.over {
				t.Errorf("that the process has ended is %v", over)
			}
		})
	}
}

// TestExecRefused: what the API server says instead of a WebSocket keeps its kind.
func TestExecRefused(t *testing.T) {
	c := serve(t, func(*websocket.Conn) {})
	if _, err := c.exec(t.Context(), "another", []string{"x"}); !missing(err) {
		t.Errorf("got %v", err)
	}
	if _, err := (&sandbox{b: &backend{api: c}, id: "another"}).Connect(t.Context(), nil); !errors.Is(err, executor.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// TestConnectAgain: a node that was restarted does not know its pods for a moment, and nothing is
// sent to a process before it says that it is there. One that has failed is not started again.
func TestConnectAgain(t *testing.T) {
	for name, test := range map[string]struct {
		first string
		calls int
		fails bool
	}{
		"unknown": {`{"status":"Failure","reason":"InternalError","message":"pod does not exist"}`, 2, false},
		"failed":  {`{"status":"Failure","reason":"NonZeroExitCode","message":"exit code 1"}`, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			c := serve(t, func(conn *websocket.Conn) {
				if calls.Add(1) == 1 {
					conn.WriteMessage(websocket.BinaryMessage, append([]byte{channelStatus}, test.first...))
					return
				}
				conn.WriteMessage(websocket.BinaryMessage, []byte{channelOut, handover.Ready, 'x'})
				conn.ReadMessage()
			})
			conn, err := (&sandbox{b: &backend{api: c}, id: "there"}).Connect(t.Context(), []string{"bridge"})
			if (err != nil) != test.fails || int(calls.Load()) != test.calls {
				t.Fatalf("got %v after %d calls", err, calls.Load())
			}
			if err != nil {
				return
			}
			defer conn.Close()
			got := make([]byte, 1)
			if _, err := io.ReadFull(conn, got); err != nil || got[0] != 'x' {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestSessionInfo: a pod that says different things about whose it is is no session.
func TestSessionInfo(t *testing.T) {
	id := strings.Repeat("b", 26)
	labels := map[string]string{driver.LabelID: id, driver.LabelOwner: "me"}
	start := &runner.Start{Create: &driver.Create{ID: id}, Info: executor.SessionInfo{Labels: labels}}
	x := testBox(&Config{Namespace: "a"}, executor.NetworkNone)
	x.id, x.labels, x.note = id, labels, start.Note()
	if info, err := sessionInfo(x.pod()); err != nil || info.Handle.Session != id || info.Labels[driver.LabelOwner] != "me" {
		t.Errorf("got %+v, %v", info, err)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"name":  func(p *corev1.Pod) { p.Name = "execbroker-other" },
		"owner": func(p *corev1.Pod) { p.Labels[labelOwner] = remote.OwnerHash("you") },
		"id":    func(p *corev1.Pod) { p.Labels[labelSession] = strings.Repeat("c", 26) },
		"note":  func(p *corev1.Pod) { delete(p.Annotations, annotationNote) },
	} {
		pod := x.pod()
		change(pod)
		if _, err := sessionInfo(pod); !errors.Is(err, executor.ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestBearer: a token is read for each request, and goes nowhere else than into its header.
func TestBearer(t *testing.T) {
	var got []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header.Get("Authorization")) }))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "token")
	b := &bearer{driver.Secret{File: file}, s.Client().Transport}
	for _, token := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := b.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if !slices.Equal(got, []string{"Bearer one", "Bearer two"}) {
		t.Errorf("got %q", got)
	}
}
