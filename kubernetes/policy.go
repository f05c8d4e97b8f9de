package kubernetes

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/execbroker/execbroker/executor"
)

// policyName is the name of the NetworkPolicy of sandboxes without network.
const policyName = podPrefix + "none"

// policyPath is where the NetworkPolicies of a namespace are.
const policyPath = "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies"

// denyAll is a policy that lets nothing in and nothing out.
func denyAll() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policyName, Labels: map[string]string{labelManager: manager}},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelManager: manager, labelNetwork: string(executor.NetworkNone)}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

// ensurePolicy makes the policy, once, or sees that the one that is there is not another one.
// Whether the cluster enforces it each pod proves.
func (b *backend) ensurePolicy(ctx context.Context) error {
	if b.denied.Load() {
		return nil
	}
	err := b.api.createPolicy(ctx, denyAll())
	if apierrors.IsAlreadyExists(err) {
		var there *networkingv1.NetworkPolicy
		if there, err = b.api.getPolicy(ctx, policyName); err == nil && !deniesAll(&there.Spec) {
			return unsupported(fmt.Errorf("NetworkPolicy %s of namespace %s lets something through; delete it, and the next session makes it anew", policyName, b.api.namespace), string(executor.FeatureNetworkNone))
		}
	}
	if err != nil {
		return b.api.fail(ctx, err)
	}
	b.denied.Store(true)
	return nil
}

// deniesAll reports whether a policy is the one of denyAll.
func deniesAll(s *networkingv1.NetworkPolicySpec) bool {
	want := denyAll().Spec
	return len(s.Ingress) == 0 && len(s.Egress) == 0 && len(s.PolicyTypes) == len(want.PolicyTypes) &&
		metav1.FormatLabelSelector(&s.PodSelector) == metav1.FormatLabelSelector(&want.PodSelector)
}

// createPolicy makes a policy.
func (c *client) createPolicy(ctx context.Context, p *networkingv1.NetworkPolicy) error {
	ctx, cancel := answer(ctx)
	defer cancel()
	return cut(ctx, c.rest.Post().AbsPath(fmt.Sprintf(policyPath, c.namespace)).Body(p).Do(ctx).Error())
}

// getPolicy returns a policy.
func (c *client) getPolicy(ctx context.Context, name string) (*networkingv1.NetworkPolicy, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	p := &networkingv1.NetworkPolicy{}
	err := c.rest.Get().AbsPath(fmt.Sprintf(policyPath, c.namespace) + "/" + name).Do(ctx).Into(p)
	return p, cut(ctx, err)
}
