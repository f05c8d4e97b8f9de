package podtest

import (
	"net/http"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var policyResource = schema.GroupResource{Group: "networking.k8s.io", Resource: "networkpolicies"}

// createPolicy takes a policy that lets nothing through.
func (s *Server) createPolicy(_ http.ResponseWriter, r *http.Request) (any, error) {
	p := &networkingv1.NetworkPolicy{}
	if err := read(r, p); err != nil {
		return nil, err
	}
	if p.Name == "" || len(p.Spec.Ingress)+len(p.Spec.Egress) > 0 {
		return nil, apierrors.NewBadRequest("podtest: want a policy with a name that lets nothing through")
	}
	if _, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policies[p.Name] != nil {
		return nil, apierrors.NewAlreadyExists(policyResource, p.Name)
	}
	s.policies[p.Name] = p
	return p.DeepCopy(), nil
}

// getPolicy returns a policy.
func (s *Server) getPolicy(_ http.ResponseWriter, r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	if s.policies[name] == nil {
		return nil, apierrors.NewNotFound(policyResource, name)
	}
	return s.policies[name].DeepCopy(), nil
}

// cutOff reports whether a policy that is enforced selects a pod.
func (s *Server) cutOff(of map[string]string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.policies {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if s.cfg.Enforces && err == nil && selector.Matches(labels.Set(of)) { // createPolicy has seen it
			return true
		}
	}
	return false
}
