package helm

import (
	"cmp"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/deploy/helm/helmtest"
	"github.com/execbroker/execbroker/e2b"
	"github.com/execbroker/execbroker/kubernetes"
)

// serviceMonitor is what the chart uses of the type of the Prometheus Operator. TestInstall shows
// it to the operator's own definition.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (m *serviceMonitor) DeepCopyObject() runtime.Object { c := *m; return &c }

// decoder refuses fields that a type does not have, and fields that stand twice.
var decoder = func() runtime.Decoder {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}, &serviceMonitor{})
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
}()

// decode returns the objects of a stream of YAML.
func decode(t *testing.T, text string) (all objects) {
	t.Helper()
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		var content []string // without comments, of which a document may have nothing else
		for line := range strings.Lines(part) {
			if !strings.HasPrefix(line, "#") {
				content = append(content, line)
			}
		}
		part = strings.TrimSpace(strings.Join(content, ""))
		if part == "" {
			continue
		}
		o, _, err := decoder.Decode([]byte(part), nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, part)
			continue
		}
		all = append(all, o)
	}
	return all
}

// objects are those of a release.
type objects []runtime.Object

// of returns the objects of a type.
func of[T runtime.Object](all objects) (found []T) {
	for _, o := range all {
		if x, ok := o.(T); ok {
			found = append(found, x)
		}
	}
	return found
}

// only returns the only object of a type.
func only[T runtime.Object](t *testing.T, all objects) (x T) {
	t.Helper()
	found := of[T](all)
	if len(found) != 1 {
		t.Fatalf("got %d objects of type %T, want 1", len(found), x)
	}
	return found[0]
}

// required are the values that every release has.
const required = `
image: {repository: registry.example/execbroker}
apiKeys: {secret: keys}
`

// everything uses what the chart can do besides.
const everything = `
apiKeys: {secret: keys, key: list}
store: {url: "rediss://redis.example:6380/1", passwordSecret: store}
secrets: {E2B_API_KEY: {secret: e2b, key: api-key}}
config: {guard: {runs_per_minute: 600, quotas: [{per: day, runs: 5000000}]}, sessions: {max_per_subject: 4}}
image: {repository: registry.example/execbroker, tag: "1", pullSecrets: [one, two]}
sandboxes:
  backend: {image: "registry.example/sandbox:1", limits: {memory: 256MiB, processes: 64}, requests: 0.5, runtime_class: kata}
  fullEgress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]
  packagesEgress: [{ports: [{port: 443}]}]
owner: shop-prod
domains: [run.shop.example, run.example]
proxies: [10.3.0.0/16]
maxConnections: 1000
service: {type: LoadBalancer, port: 8080, annotations: {a.example/b: "1"}}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
networkPolicy:
  clients: [{podSelector: {matchLabels: {app: chat}}}]
  store: [{ipBlock: {cidr: 10.1.0.0/16}}]
  apiServer: [{ipBlock: {cidr: 10.2.0.0/16}}]
  egress: [{ports: [{port: 443}]}]
autoscaling: {enabled: true}
serviceAccount: {annotations: {a.example/role: x}}
podAnnotations: {a.example/c: d}
podLabels: {team: shop}
nodeSelector: {pool: general}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}
priorityClassName: high
`

// releases are values for which the chart makes different objects.
var releases = map[string]string{
	"redis":      required + `store: {url: "redis://redis.example:6379/0", passwordSecret: store}`,
	"postgres":   required + `store: {url: "postgres://app@db.example:5432/execbroker"}` + "\nreplicas: 3",
	"no-port":    required + `store: {url: "postgres://app@db.example/execbroker"}`,
	"one":        required + "replicas: 1",
	"loaded":     "apiKeys: {secret: keys}\nreplicas: 1",
	"everything": everything,
	"policy": required + `
store: {url: "redis://redis.example:6379/0"}
sandboxes: {network: policy, create: false, namespace: boxes}
metrics: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {name: given}
`,
	"without-kubernetes": required + `
store: {url: "redis://redis.example:6379/0"}
sandboxes: {enabled: false}
secrets: {E2B_API_KEY: {secret: e2b, key: api-key}}
config: {backends: {cloud: {type: e2b}}}
networkPolicy: {enabled: false}
`,
}

// TestChart lints the chart and renders it for each kind of release. What comes out are objects of
// Kubernetes without a field too many, they select each other, the rights are those that the
// adapter uses and no others, and execbroker takes the configuration.
func TestChart(t *testing.T) {
	for name, values := range releases {
		t.Run(name, func(t *testing.T) {
			helmtest.Lint(t, chart, values)
			text, err := helmtest.Template(t, chart, values)
			if err != nil {
				t.Fatal(err)
			}
			all := decode(t, text)
			d := only[*appsv1.Deployment](t, all)
			checkPod(t, &d.Spec.Template.Spec)
			checkImage(t, &d.Spec.Template.Spec.Containers[0], name == "loaded")
			checkReferences(t, all, d)
			checkRights(t, all, d)
			checkConfiguration(t, all, d)
			checkStore(t, all, d)
		})
	}
}

// checkImage wants the image of the values, or that of a release, which no registry has.
func checkImage(t *testing.T, c *corev1.Container, loaded bool) {
	t.Helper()
	repository, pull := "registry.example/execbroker:", corev1.PullIfNotPresent
	if loaded {
		repository, pull = "docker.io/library/execbroker:", corev1.PullNever
	}
	if !strings.HasPrefix(c.Image, repository) || c.ImagePullPolicy != pull {
		t.Errorf("got the image %s, pulled %s, want %s and %s", c.Image, c.ImagePullPolicy, repository, pull)
	}
}

// checkStore wants replicas to reach the store at its port.
func checkStore(t *testing.T, all objects, d *appsv1.Deployment) {
	t.Helper()
	_, at, found := strings.Cut(only[*corev1.ConfigMap](t, all).Data["app.yaml"], "store: ")
	if !found {
		return
	}
	at, _, _ = strings.Cut(at, "\n")
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	want := cmp.Or(u.Port(), map[string]string{"postgres": "5432", "redis": "6379", "rediss": "6379"}[u.Scheme])
	for _, n := range of[*networkingv1.NetworkPolicy](all) {
		if n.Namespace != d.Namespace {
			continue
		}
		if p := n.Spec.Egress[1].Ports; len(p) != 1 || p[0].Port.String() != want { // behind that to name servers
			t.Errorf("the store is at %s, and replicas may connect to %v", at, p)
		}
	}
}

// TestText gives values that YAML would read as something else than text. They arrive as they are.
func TestText(t *testing.T) {
	const owner = "a: b # c\n- --listen=evil"
	text, err := helmtest.Template(t, chart, `
image: {repository: registry.example/execbroker, pullSecrets: ["1"]}
apiKeys: {secret: "2", key: "true"}
store: {url: "redis://redis.example:6379/0", passwordSecret: "3", passwordKey: "4"}
secrets: {E2B_API_KEY: {secret: "5", key: "null"}}
owner: "a: b # c\n- --listen=evil"
domains: ["x: y", "*"]
proxies: ["1.2.3.4"]
sandboxes: {namespace: "6"}
serviceAccount: {name: "7"}
priorityClassName: "8"
serviceMonitor: {enabled: true}
autoscaling: {enabled: true}
`, "--namespace", "123")
	if err != nil {
		t.Fatal(err)
	}
	all := decode(t, text)
	d := only[*appsv1.Deployment](t, all)
	c := d.Spec.Template.Spec.Containers[0]
	for _, want := range []string{"--owner=" + owner, "--domain=x: y", "--domain=*", "--proxy=1.2.3.4", "--max-connections=4096", "--max-connections-per-address=128"} {
		if !slices.Contains(c.Args, want) {
			t.Errorf("got %q, want %q", c.Args, want)
		}
	}
	named := map[string]string{}
	for _, v := range c.Env {
		if f := v.ValueFrom; f != nil && f.SecretKeyRef != nil {
			named[v.Name] = f.SecretKeyRef.Name + "/" + f.SecretKeyRef.Key
		}
	}
	want := map[string]string{"EXECBROKER_API_KEYS": "2/true", "EXECBROKER_STORE_PASSWORD": "3/4", "E2B_API_KEY": "5/null"}
	if p := d.Spec.Template.Spec; !maps.Equal(named, want) || p.ServiceAccountName != "7" || p.PriorityClassName != "8" || p.ImagePullSecrets[0].Name != "1" || d.Namespace != "123" {
		t.Errorf("got secrets %v and %+v in %s", named, p, d.Namespace)
	}
}

// checkPod wants what Pod Security calls restricted, and more.
func checkPod(t *testing.T, p *corev1.PodSpec) {
	t.Helper()
	c := p.Containers[0]
	s, own := p.SecurityContext, c.SecurityContext
	switch {
	case len(p.Containers) != 1 || len(p.InitContainers) > 0:
		t.Error("want one container")
	case p.HostNetwork || p.HostPID || p.HostIPC:
		t.Error("the pod shares namespaces of its node")
	case !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
		t.Errorf("got %+v", s)
	case *own.AllowPrivilegeEscalation || !*own.ReadOnlyRootFilesystem || !slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(own.Capabilities.Add) > 0:
		t.Errorf("got %+v", own)
	case c.StartupProbe == nil || c.ReadinessProbe == nil || c.LivenessProbe.TCPSocket == nil:
		t.Error("want three probes, of which that for life asks for a connection only, because a restart ends runs")
	}
	for _, name := range []string{"HOME", "XDG_CACHE_HOME"} { // where programs and packages are kept
		at := ""
		for _, v := range c.Env {
			if v.Name == name {
				at = v.Value
			}
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == at && !m.ReadOnly }) {
			t.Errorf("%s is %q, which nobody can write", name, at)
		}
	}
	drain := int64(0)
	for _, a := range c.Args {
		if s, ok := strings.CutPrefix(a, "--drain="); ok {
			d, err := time.ParseDuration(s)
			if err != nil {
				t.Error(err)
			}
			drain = int64(d.Seconds())
		}
	}
	if got := *p.TerminationGracePeriodSeconds; drain == 0 || got <= drain+c.Lifecycle.PreStop.Sleep.Seconds {
		t.Errorf("the pod is killed after %d s, and drains for %d s", got, drain)
	}
}

// checkReferences wants what objects say of each other to be true.
func checkReferences(t *testing.T, all objects, d *appsv1.Deployment) {
	t.Helper()
	pod, c := d.Spec.Template, d.Spec.Template.Spec.Containers[0]
	selects := func(what string, s *metav1.LabelSelector) {
		t.Helper()
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %v, and pods have %v: %v", what, s, pod.Labels, err)
		}
		for name := range s.MatchLabels {
			if strings.Contains(name, "version") || strings.Contains(name, "chart") {
				t.Errorf("%s selects by %s, which an upgrade changes", what, name)
			}
		}
	}
	selects("the Deployment", d.Spec.Selector)
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for _, s := range of[*corev1.Service](all) {
		selects("Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, p := range s.Spec.Ports {
			if !ports[p.TargetPort.StrVal] {
				t.Errorf("Service %s leads to port %s, and pods have %v", s.Name, &p.TargetPort, ports)
			}
		}
	}
	for _, b := range of[*policyv1.PodDisruptionBudget](all) {
		selects("the PodDisruptionBudget", b.Spec.Selector)
	}
	for _, n := range of[*networkingv1.NetworkPolicy](all) {
		if n.Namespace == d.Namespace {
			selects("NetworkPolicy "+n.Name, &n.Spec.PodSelector)
		}
	}
	for _, h := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
		if r := h.Spec.ScaleTargetRef; r.Kind != "Deployment" || r.Name != d.Name || d.Spec.Replicas != nil {
			t.Errorf("got %+v for Deployment %s with %v replicas", r, d.Name, d.Spec.Replicas)
		}
	}
	for _, m := range of[*serviceMonitor](all) {
		found := 0
		selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range of[*corev1.Service](all) {
			if selector.Matches(labels.Set(s.Labels)) && s.Spec.Ports[0].Name == m.Spec.Endpoints[0].Port {
				found++
			}
		}
		if found != 1 {
			t.Errorf("the ServiceMonitor finds %d services with its port, want 1", found)
		}
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("no volume %s", m.Name)
		}
	}
}

// checkRights wants exactly the rights that the adapter uses, in the namespace of sandboxes only.
func checkRights(t *testing.T, all objects, d *appsv1.Deployment) {
	t.Helper()
	if len(of[*rbacv1.ClusterRole](all))+len(of[*rbacv1.ClusterRoleBinding](all)) > 0 {
		t.Error("there are rights in the whole cluster")
	}
	roles, bindings := of[*rbacv1.Role](all), of[*rbacv1.RoleBinding](all)
	token := d.Spec.Template.Spec.AutomountServiceAccountToken
	if len(roles) == 0 && len(bindings) == 0 {
		if *token {
			t.Error("without rights there is a token")
		}
		return
	}
	role, binding := only[*rbacv1.Role](t, all), only[*rbacv1.RoleBinding](t, all)
	mode := kubernetes.NetworkInterface
	if slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "networkpolicies") }) {
		mode = kubernetes.NetworkPolicy
	}
	text, err := kubernetes.RBAC(role.Namespace, "x", mode)
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, text)
	if r := only[*rbacv1.Role](t, want); !reflect.DeepEqual(role.Rules, r.Rules) {
		t.Errorf("got the rights %+v, want %+v", role.Rules, r.Rules)
	}
	for _, n := range of[*corev1.Namespace](all) {
		const level = "pod-security.kubernetes.io/enforce"
		if w := only[*corev1.Namespace](t, want); n.Name != role.Namespace || n.Labels[level] != w.Labels[level] {
			t.Errorf("got namespace %s with %v, want %v", n.Name, n.Labels, w.Labels)
		}
	}
	account := rbacv1.Subject{Kind: "ServiceAccount", Name: d.Spec.Template.Spec.ServiceAccountName, Namespace: d.Namespace}
	if binding.Namespace != role.Namespace || binding.RoleRef.Name != role.Name || !slices.Equal(binding.Subjects, []rbacv1.Subject{account}) {
		t.Errorf("got %+v", binding)
	}
	for _, a := range of[*corev1.ServiceAccount](all) {
		if a.Name != account.Name || *a.AutomountServiceAccountToken {
			t.Errorf("got account %+v: other pods of the namespace get its token", a)
		}
	}
}

// checkConfiguration reads the file as execbroker does, and wants each variable that it names.
func checkConfiguration(t *testing.T, all objects, d *appsv1.Deployment) {
	t.Helper()
	m := only[*corev1.ConfigMap](t, all)
	if got := slices.Collect(maps.Keys(m.Data)); !slices.Equal(got, []string{"app.yaml"}) {
		t.Fatalf("got files %q", got)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if want := "--config=" + c.VolumeMounts[0].MountPath + "/app.yaml"; !slices.Contains(c.Args, want) {
		t.Errorf("got %q, want %s", c.Args, want)
	}
	text := m.Data["app.yaml"]
	cfg, err := backends.Parse([]byte(text))
	if err == nil {
		err = cfg.Check(backends.NewRegistry(kubernetes.Factory(), e2b.Factory()))
	}
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	variables := map[string]bool{}
	for _, v := range c.Env {
		if variables[v.Name] = true; v.Value == "" && v.ValueFrom == nil {
			t.Errorf("variable %s has no value", v.Name)
		}
	}
	for _, named := range regexp.MustCompile(`env: (\w+)`).FindAllStringSubmatch(text, -1) {
		if !variables[named[1]] {
			t.Errorf("the configuration names variable %s, which the container does not have:\n%s", named[1], text)
		}
	}
	if !variables["EXECBROKER_API_KEYS"] || variables["EXECBROKER_STORE_PASSWORD"] != strings.Contains(text, "store_password:") {
		t.Errorf("got variables %v for\n%s", variables, text)
	}
}

// TestRefused gives values that make no sense. Each is refused before anything is rendered, by its
// name.
func TestRefused(t *testing.T) {
	const store = "store: {url: \"redis://redis.example:6379/0\"}\n"
	for name, test := range map[string]struct{ values, says string }{
		"no-store":          {required, "store"},
		"no-store-to-scale": {required + "replicas: 1\nautoscaling: {enabled: true}", "store"},
		"pull-from-nowhere": {"apiKeys: {secret: keys}\nimage: {pullPolicy: Always}\n" + store, "image.pullPolicy: Always needs image.repository"},
		"no-keys":           {"image: {repository: r.example/x}\n" + store, "apiKeys.secret: is required"},
		"unknown":           {required + store + "replica: 3", "replica"},
		"unknown-below":     {required + store + "sandboxes: {name: x}", "name"},
		"password":          {required + `store: {url: "redis://:secret@redis.example:6379/0"}`, "/store/url"},
		"other-store":       {required + `store: {url: "sqlite:file.db"}`, "/store/url"},
		"store-twice":       {required + store + "config: {sessions: {store: \"redis://h:1/0\"}}", "store.url"},
		"same-namespace":    {required + store + "sandboxes: {namespace: apps}", "sandboxes.namespace"},
		"short-drain":       {required + store + "drainSeconds: 10", "drainSeconds"},
		"no-metrics":        {required + store + "metrics: {enabled: false}\nserviceMonitor: {enabled: true}", "serviceMonitor: needs metrics.enabled"},
		"no-backend":        {required + store + "sandboxes: {enabled: false}", "config.backends: is required"},
		"two-backends":      {required + store + "sandboxes: {backend: {image: a.example/b}}\nconfig: {backends: {a: {type: e2b}}}", "excludes config.backends"},
		"password-alone":    {required + "replicas: 1\nstore: {passwordSecret: store}", "store.passwordSecret: needs store.url"},
		"egress-of-none":    {required + store + "sandboxes: {enabled: false, fullEgress: [{}]}\nconfig: {backends: {a: {type: e2b}}}", "need sandboxes.enabled"},
		"given-account":     {required + store + "serviceAccount: {name: x, annotations: {a: b}}", "serviceAccount.annotations"},
		"least-of-most":     {required + store + "autoscaling: {enabled: true, minReplicas: 7}", "autoscaling.maxReplicas"},
		"variable-twice":    {required + store + "secrets: {HOME: {secret: a, key: b}}", "secrets.HOME: the chart sets it"},
		"label-twice":       {required + store + "podLabels: {app.kubernetes.io/name: x}", "podLabels: app.kubernetes.io/name"},
		"annotation-twice":  {required + store + "podAnnotations: {checksum/config: x}", "podAnnotations: checksum/config"},
		"namespace-twice":   {required + store + "sandboxes: {backend: {namespace: a}}", "sandboxes.backend.namespace: the chart sets it"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := helmtest.Template(t, chart, test.values)
			if err == nil {
				t.Fatalf("rendered:\n%s", text)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %q in it", err, test.says)
			}
		})
	}
}
