package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
)

// Doctor examines what the backend needs: the cluster, the rights, what the namespace admits, and
// what else is in it. It changes nothing: whether a pod is admitted it asks by a dry run.
func Doctor(ctx context.Context, env driver.Env, cfg Config) []driver.Check {
	b, err := newBackend(env, cfg)
	if err != nil {
		return []driver.Check{{Name: "cluster", Detail: err.Error(), Fix: "correct kubeconfig, context, in_cluster, or server and token"}}
	}
	defer b.Close()
	v, err := b.api.version(ctx)
	if err != nil {
		return []driver.Check{{Name: "cluster", Detail: b.api.fail(ctx, err).Error(), Fix: "make sure that the API server can be reached from here, with these credentials"}}
	}
	checks := []driver.Check{{Name: "cluster", OK: true, Detail: fmt.Sprintf("%s at %s (%s)", remote.Words(v.GitVersion, maxWords), b.api.cfg.Host, b.api.from)}}
	rights := b.examineRights(ctx)
	checks = append(checks, rights)
	if rights.OK {
		checks = append(checks, b.examineAdmission(ctx), b.examineOthers(ctx))
	}
	isolation := driver.Check{Name: "isolation", OK: true, Detail: string(isolationOf(cfg.RuntimeClass))}
	if isolation.Detail == string(executor.IsolationContainer) {
		isolation.Detail += ": the kernel of the node is shared"
	}
	checks = append(checks, isolation)
	network := driver.Check{Name: "network", OK: true, Detail: "none: interfaces are taken down in the pod"}
	if cfg.Network == NetworkPolicy {
		network.Detail = "none: a NetworkPolicy; each pod proves before there is code that the cluster enforces it"
	}
	if cfg.AllowClusterNetwork {
		network.Detail += "; sessions may ask for the full network, whose code reaches pods, services and nodes unless policies of the cluster forbid it"
	}
	return append(append(checks, network), cfg.sources().Examine()...)
}

// examineRights asks for each right whether it is there.
func (b *backend) examineRights(ctx context.Context) driver.Check {
	c := driver.Check{Name: "rights", OK: true, Detail: "pods, pods/exec and events of namespace " + b.api.namespace}
	var lacks []string
	for _, r := range rightsOf(b.cfg.Network) {
		for _, a := range r.attributes() {
			allowed, err := b.api.review(ctx, a)
			if err != nil {
				return driver.Check{Name: "rights", Detail: b.api.fail(ctx, err).Error(), Fix: "make sure that these credentials are those of an account of the cluster"}
			}
			if !allowed {
				lacks = append(lacks, a.Verb+" "+r.name())
			}
		}
	}
	if len(lacks) > 0 {
		c.OK, c.Detail = false, "not allowed in namespace "+b.api.namespace+": "+strings.Join(lacks, ", ")
		c.Fix = "execbroker kubernetes rbac --namespace " + b.api.namespace + " --network " + string(cmp.Or(b.cfg.Network, NetworkInterface)) + " | kubectl apply -f -"
	}
	return c
}

// examineAdmission asks whether the cluster would make a pod as sessions have it.
func (b *backend) examineAdmission(ctx context.Context) driver.Check {
	x := &box{
		cfg: &b.cfg, id: strings.Repeat("a", 26), image: b.cfg.image(""), network: executor.NetworkNone, labels: map[string]string{driver.LabelOwner: b.env.Owner},
		want: b.cfg.limits(&executor.Spec{}), life: b.cfg.MaxLife.Max(), uid: b.cfg.userID(""), command: []string{python},
		installs: b.cfg.installs(),
	}
	_, err := b.api.create(ctx, x.pod(), true)
	if err == nil {
		return driver.Check{Name: "admission", OK: true, Detail: "namespace " + b.api.namespace + " takes pods of sessions"}
	}
	err = b.api.fail(ctx, err)
	c := driver.Check{Name: "admission", Detail: err.Error(), Fix: "change what refuses the pod, or the configuration"}
	var e *executor.Error
	if errors.As(err, &e) {
		switch {
		case e.Kind == executor.ErrUnavailable:
			c.Fix = "execbroker kubernetes rbac --namespace " + b.api.namespace + " prints a namespace with what is needed"
		case len(e.Missing) > 0 && e.Missing[0] == podSecurity:
			c.Fix = "kubectl label namespace " + b.api.namespace + " --overwrite pod-security.kubernetes.io/enforce=privileged"
		case e.Kind == executor.ErrExhausted:
			c.Fix = "raise the quota, or end sessions"
		}
	}
	return c
}

// examineOthers looks for pods that are no sandboxes.
func (b *backend) examineOthers(ctx context.Context) driver.Check {
	c := driver.Check{Name: "nothing else in the namespace", OK: true}
	sessions, others := 0, 0
	err := b.api.list(ctx, "", func(pod *corev1.Pod) bool {
		if _, err := sessionInfo(pod); err == nil {
			sessions++
		} else {
			others++
		}
		return true
	})
	switch {
	case err != nil:
		c.OK, c.Detail, c.Fix = false, b.api.fail(ctx, err).Error(), "make sure that pods can be listed"
	case others > 0:
		c.OK, c.Detail = false, fmt.Sprintf("%d pods of namespace %s are no sandboxes", others, b.api.namespace)
		c.Fix = "use a namespace for sandboxes alone: whoever may create pods there has their rights, too"
	default:
		c.Detail = fmt.Sprintf("%d sandboxes", sessions)
	}
	return c
}

// parseVersion reads what the API server says of itself.
func parseVersion(raw []byte) (*version.Info, error) {
	v := &version.Info{}
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, err
	}
	return v, nil
}
