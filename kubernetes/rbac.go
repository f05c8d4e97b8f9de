package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// right is what the adapter needs to be allowed in its namespace.
type right struct {
	group, resource, sub string
	verbs                []string
	why                  string
}

// rightsOf returns all that the adapter asks for in a network mode.
func rightsOf(mode NetworkMode) []right {
	if mode == NetworkPolicy {
		return append(slices.Clone(rights), right{
			group: "networking.k8s.io", resource: "networkpolicies", verbs: []string{"create", "get"}, why: "the policy that takes the network from them",
		})
	}
	return rights
}

// rights are those of every mode. Up to Kubernetes 1.34 a WebSocket needs get on
// pods/exec, and from 1.35 on create as well.
var rights = []right{
	{resource: "pods", verbs: []string{"create", "delete", "get", "list", "watch"}, why: "a pod for each session"},
	{resource: "pods", sub: "exec", verbs: []string{"create", "get"}, why: "the connections to their runners"},
	{resource: "events", verbs: []string{"list"}, why: "to tell an eviction from the end of a life"},
}

// name is resource/sub.
func (r right) name() string { return strings.TrimSuffix(r.resource+"/"+r.sub, "/") }

// attributes are the questions whether a right is there.
func (r right) attributes() (all []authorizationv1.ResourceAttributes) {
	for _, verb := range r.verbs {
		all = append(all, authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: r.resource, Subresource: r.sub})
	}
	return all
}

// RBAC returns the manifests of a namespace for sandboxes and of a service account that may use it,
// as kubectl apply takes them. They hold every right that the adapter uses in a network mode, which
// may be empty, and no other.
func RBAC(namespace, account string, mode NetworkMode) (string, error) {
	if !label.MatchString(namespace) {
		return "", fmt.Errorf("%q is no name of a namespace", namespace)
	}
	if err := checkName(account); err != nil {
		return "", err
	}
	var err error
	(&Config{Network: mode}).checkNetwork(func(_ string, e error) { err = e })
	if err != nil {
		return "", fmt.Errorf("network: %w", err)
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels:\n", namespace)
	level := "baseline"
	if mode != NetworkPolicy {
		p("    # Sandboxes without network have NET_ADMIN until the network is down, which lower levels refuse.\n")
		level = "privileged"
	}
	p("    pod-security.kubernetes.io/enforce: %s\n", level)
	p("---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: %s\n  namespace: %s\n", account, namespace)
	p("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: %s\n  namespace: %s\nrules:\n", account, namespace)
	for _, r := range rightsOf(mode) {
		p("  # %s\n  - apiGroups: [%q]\n    resources: [%q]\n    verbs: [%s]\n", r.why, r.group, r.name(), `"`+strings.Join(r.verbs, `", "`)+`"`)
	}
	p("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: %s\n  namespace: %s\n", account, namespace)
	p("roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %s}\n", account)
	p("subjects: [{kind: ServiceAccount, name: %s, namespace: %s}]\n", account, namespace)
	return b.String(), nil
}
