package helm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/execbroker/execbroker/deploy/helm/helmtest"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/dbtest"
	"github.com/execbroker/execbroker/kubernetes"
)

// serveImage is the image of execbroker that the guide names.
const serveImage = "registry.example/execbroker:0.1.0"

// TestInstall follows the guide on a cluster: it installs the chart with Redis, uses it, upgrades
// it and removes it. Beside that release it installs another one, with PostgreSQL.
func TestInstall(t *testing.T) {
	d := newDesk(t)
	g := readGuide(t)
	db := dbtest.Redis(t)
	d.env = append(d.env, "STORE_PASSWORD="+db.Password)
	values := strings.NewReplacer("redis.example:6379", d.reach(t, db.URL), "image: registry.example/sandbox:1", "image: "+dockertest.Python+"\n    pull: never")
	d.write("values.yaml", values.Replace(g.file("values.yaml")))
	empty := d.settled()

	d.run(g.commands("Before you install"))
	made := d.settled()
	d.run(g.commands("Install"))
	r := d.release("execbroker", "execbroker", "execbroker-sandboxes")
	r.ready(2)
	port := freePort(t)
	said := d.run(strings.ReplaceAll(g.commands("Use it"), "3000", port))
	if !strings.Contains(said, `"stdout":"42\n"`) {
		t.Errorf("got %s", said)
	}
	t.Run("replicas", r.testReplicas)
	t.Run("rights", r.testRights)
	t.Run("metrics", r.testMetrics)
	t.Run("postgres", func(t *testing.T) { testPostgres(t, d) })
	t.Run("disruption", r.testDisruption)
	t.Run("upgrade", func(t *testing.T) { r.testUpgrade(t, g.commands("Upgrade")) })

	remove := strings.Split(strings.TrimSpace(g.commands("Remove")), "\n")
	d.run(remove[0])
	d.gone(made, "helm uninstall")
	d.run(strings.Join(remove[1:], "\n"))
	d.gone(empty, "the guide")
	if err := d.until(func() error {
		left, err := d.cluster.Running()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("containers %q run", left)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// testReplicas goes on with a conversation at the other replica, in its sandbox.
func (r *release) testReplicas(t *testing.T) {
	r = r.in(t)
	at := r.ready(2)
	if _, err := r.turn(at[0], "chat", "first", "x = 40"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"41\n", "42\n"} {
		got, err := r.turn(at[(i+1)%2], "chat", fmt.Sprint("then-", i), "x += 1\nprint(x)")
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	var pods corev1.PodList
	if err := r.get("/api/v1/namespaces/"+r.sandboxes+"/pods", &pods); err != nil || len(pods.Items) == 0 {
		t.Errorf("got %d sandboxes, %v", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Image != dockertest.Python || p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
			t.Errorf("got a sandbox of image %s, which wants a token: %v", p.Spec.Containers[0].Image, p.Spec.AutomountServiceAccountToken)
		}
	}
}

// testRights asks the API server what the account of the replicas may do, and does some of it.
func (r *release) testRights(t *testing.T) {
	r = r.in(t)
	raw, err := r.cluster.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+r.namespace+"/serviceaccounts/"+r.name+"/token",
		`{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {}}`)
	if err != nil {
		t.Fatal(err)
	}
	var token struct{ Status struct{ Token string } }
	if err := json.Unmarshal(raw, &token); err != nil {
		t.Fatal(err)
	}
	as := r.account(t, token.Status.Token)

	text, err := kubernetes.RBAC(r.sandboxes, "x", kubernetes.NetworkInterface)
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.Role
	for _, o := range decode(t, text) {
		if x, ok := o.(*rbacv1.Role); ok {
			role = *x
		}
	}
	for namespace, want := range map[string][]rbacv1.PolicyRule{r.sandboxes: role.Rules, r.namespace: nil, "default": nil, "kube-system": nil} {
		var review authorizationv1.SelfSubjectRulesReview
		status, raw := as(http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			`{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "`+namespace+`"}}`)
		if err := json.Unmarshal(raw, &review); err != nil || status != http.StatusCreated || review.Status.Incomplete {
			t.Fatalf("got %d, %v, %s", status, err, raw)
		}
		got, wanted := map[string]bool{}, map[string]bool{}
		for _, rule := range review.Status.ResourceRules {
			if !slices.Contains([]string{"authorization.k8s.io", "authentication.k8s.io"}, rule.APIGroups[0]) { // what everybody may ask about himself
				single(got, rule.APIGroups, rule.Resources, rule.Verbs)
			}
		}
		for _, rule := range want {
			single(wanted, rule.APIGroups, rule.Resources, rule.Verbs)
		}
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("in namespace %s: got %v, want %v", namespace, got, wanted)
		}
	}

	for path, want := range map[string]int{
		"/api/v1/namespaces/" + r.sandboxes + "/pods":                    http.StatusOK,
		"/api/v1/namespaces/" + r.sandboxes + "/secrets":                 http.StatusForbidden,
		"/api/v1/namespaces/" + r.namespace + "/secrets/execbroker-keys": http.StatusForbidden,
		"/api/v1/namespaces/" + r.namespace + "/pods":                    http.StatusForbidden,
		"/api/v1/pods":  http.StatusForbidden,
		"/api/v1/nodes": http.StatusForbidden,
	} {
		if got, said := as(http.MethodGet, path, ""); got != want {
			t.Errorf("%s: got %d, want %d: %s", path, got, want, said)
		}
	}
}

// single adds each right of a rule.
func single(to map[string]bool, groups, resources, verbs []string) {
	for _, g := range groups {
		for _, r := range resources {
			for _, v := range verbs {
				to[v+" "+g+"/"+r] = true
			}
		}
	}
}

// account returns how an account asks the API server.
func (r *release) account(t *testing.T, token string) func(method, path, body string) (int, []byte) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(filepath.Dir(r.cluster.Kubeconfig), "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	server := strings.TrimSpace(r.run("kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}, Timeout: time.Minute}
	return func(method, path, body string) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, raw
	}
}

// testMetrics reads them as Prometheus does, at a port that has nothing else.
func (r *release) testMetrics(t *testing.T) {
	r = r.in(t)
	read := func(url string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(raw)
	}
	at := r.ready(2)[0]
	if status, text := read("http://" + at + ":9464/metrics"); status != http.StatusOK || !strings.Contains(text, "\nexecbroker_") {
		t.Errorf("got %d, %s", status, text)
	}
	if status, _ := read("http://" + at + ":9464/v1/info"); status != http.StatusNotFound {
		t.Errorf("the port of metrics answers %d to the API", status)
	}
}

// testDisruption drains nodes as Kubernetes does: one replica may go, the other stays until there
// is a new one.
func (r *release) testDisruption(t *testing.T) {
	r = r.in(t)
	allowed := func(want int32) {
		t.Helper()
		if err := r.until(func() error {
			var b policyv1.PodDisruptionBudget
			err := r.get("/apis/policy/v1/namespaces/"+r.namespace+"/poddisruptionbudgets/"+r.name, &b)
			if err == nil && b.Status.DisruptionsAllowed != want {
				err = fmt.Errorf("%d disruptions are allowed, want %d", b.Status.DisruptionsAllowed, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	var pods corev1.PodList
	if err := r.get("/api/v1/namespaces/"+r.namespace+"/pods?labelSelector=app.kubernetes.io/instance%3D"+r.name, &pods); err != nil || len(pods.Items) != 2 {
		t.Fatalf("got %d pods, %v", len(pods.Items), err)
	}
	allowed(1)
	evict := func(p corev1.Pod) error {
		_, err := r.cluster.Do(t.Context(), http.MethodPost, "/api/v1/namespaces/"+r.namespace+"/pods/"+p.Name+"/eviction",
			"{apiVersion: policy/v1, kind: Eviction, metadata: {name: "+p.Name+"}}")
		return err
	}
	if err := evict(pods.Items[0]); err != nil {
		t.Error(err)
	}
	if err := evict(pods.Items[1]); err == nil || !strings.Contains(err.Error(), "429") {
		t.Errorf("the second replica may be evicted, too: %v", err)
	}
	allowed(1)
	r.ready(2)
}

// testUpgrade talks while replicas are replaced, and while others that cannot start should replace
// them: no turn fails, and the conversation keeps what it has. A run of a hundred seconds at a
// replica that is replaced is answered. Who talks learns late where the service leads, as through
// the proxies of nodes, so a replica that is told to end has to serve for a while.
func (r *release) testUpgrade(t *testing.T, commands string) {
	r = r.in(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	turns, last := 0, time.Duration(0)
	var talk sync.WaitGroup
	seen := map[string]bool{}
	if _, err := r.turn(r.ready(2)[0], "long", "begin", "n = 0"); err != nil {
		t.Fatal(err)
	}
	talk.Go(func() {
		var all []string
		var learned time.Time
		for ctx.Err() == nil {
			if time.Since(learned) > 3*time.Second {
				var err error
				if all, err = r.addresses(); err != nil || len(all) == 0 {
					t.Errorf("nobody serves: %v", err)
					return
				}
				slices.Sort(all)
				learned = time.Now()
			}
			at := all[turns%len(all)]
			seen[at] = true
			turns++
			began := time.Now()
			got, err := r.turn(at, "long", fmt.Sprint("turn-", turns), "n += 1\nprint(n)")
			last = max(last, time.Since(began))
			if want := fmt.Sprintln(turns); err != nil || got != want {
				t.Errorf("turn %d at %s: got %q, %v, want %q", turns, at, got, err, want)
				return
			}
		}
	})
	old := r.ready(2)
	boxes := func() int {
		var pods corev1.PodList
		if err := r.get("/api/v1/namespaces/"+r.sandboxes+"/pods?fieldSelector=status.phase%3DRunning", &pods); err != nil {
			t.Error(err)
		}
		return len(pods.Items)
	}
	before := boxes()
	slow := make(chan error, 1)
	talk.Go(func() {
		got, err := r.turn(old[0], "slow", "slow", "import time\nfor _ in range(100): time.sleep(1)\nprint('done')")
		if err == nil && got != "done\n" {
			err = fmt.Errorf("got %q", got)
		}
		slow <- err
	})
	if err := r.until(func() error { // it begins, in a sandbox of its own
		if n := boxes(); n <= before {
			return fmt.Errorf("%d sandboxes run", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.run(commands)
	now := r.ready(2)
	for _, a := range now {
		if slices.Contains(old, a) {
			t.Errorf("%s is an old replica", a)
		}
	}
	const bad = "helm upgrade execbroker deploy/helm/execbroker -n execbroker -f values.yaml --set image.tag=not-there --wait --timeout 15s"
	if said, err := r.try(bad); err == nil {
		t.Errorf("an image that is not there was installed: %s", said)
	}
	if all, err := r.addresses(); err != nil || len(all) != 2 {
		t.Errorf("got replicas %q, %v, want the two old ones", all, err)
	}
	r.run("helm rollback execbroker -n execbroker --wait --timeout 2m")
	stop()
	if err := <-slow; err != nil {
		t.Errorf("the run at a replica that was replaced: %v", err)
	}
	talk.Wait()
	if turns < 10 || len(seen) < 4 {
		t.Errorf("%d turns at %d replicas show little", turns, len(seen))
	}
	t.Logf("%d turns at %d replicas, the longest took %v", turns, len(seen), last)
}

// testPostgres installs a second release beside the first, over PostgreSQL and with a
// ServiceMonitor, and removes it.
func testPostgres(t *testing.T, d *desk) {
	db := dbtest.Postgres(t)
	own := *d
	own.T = t
	before := own.settled()
	own.write("operator.yaml", string(serviceMonitors(t)))
	own.write("postgres.yaml", `
image: {repository: registry.example/execbroker, tag: "0.1.0"}
apiKeys: {secret: execbroker-keys}
store: {url: "postgres://app@`+own.reach(t, db.URL)+`/postgres?sslmode=disable", passwordSecret: execbroker-store}
sandboxes: {namespace: other-sandboxes, backend: {image: "`+dockertest.Python+`", pull: never, requests: 0.1}}
serviceMonitor: {enabled: true}
`)
	own.env = append(slices.Clone(own.env), "STORE_PASSWORD="+db.Password)
	own.run(`kubectl create namespace apps
kubectl -n apps create secret generic execbroker-keys --from-literal=api-keys="$(openssl rand -hex 20)"
kubectl -n apps create secret generic execbroker-store --from-literal=password="$STORE_PASSWORD"
kubectl create -f operator.yaml`)
	if err := own.until(func() error {
		_, err := own.try("kubectl -n apps get servicemonitors")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	own.run(`helm install other deploy/helm/execbroker -n apps -f postgres.yaml --wait --timeout 5m
kubectl -n apps exec deploy/other-execbroker -- execbroker doctor --config /etc/execbroker/app.yaml
kubectl -n apps get servicemonitor other-execbroker`)
	r := own.release("other-execbroker", "apps", "other-sandboxes")
	t.Run("replicas", r.testReplicas)
	own.run(`helm uninstall other -n apps --wait
kubectl delete namespace apps
kubectl delete -f operator.yaml`)
	own.gone(before, "the second release")
}

// serviceMonitors returns the definition of the type from the operator's own sources.
func serviceMonitors(t *testing.T) []byte {
	t.Helper()
	const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operator)
	cmd.Dir = t.TempDir()
	out, err := helmtest.Output(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
