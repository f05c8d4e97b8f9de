package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/execbroker/execbroker/executor/driver"
)

// client speaks to the API server about the pods of one namespace. It has the REST client of
// client-go with the few types that it needs, instead of the generated clients of all types: see
// docs/decisions/0050.
type client struct {
	cfg       *rest.Config
	rest      *rest.RESTClient
	transport *http.Transport
	namespace string
	from      string // for people: what said where the cluster is
}

// codecs knows the types that are sent and received.
var codecs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Event{}, &corev1.EventList{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	s.AddKnownTypes(authorizationv1.SchemeGroupVersion, &authorizationv1.SelfSubjectAccessReview{})
	metav1.AddToGroupVersion(s, authorizationv1.SchemeGroupVersion)
	s.AddKnownTypes(networkingv1.SchemeGroupVersion, &networkingv1.NetworkPolicy{})
	metav1.AddToGroupVersion(s, networkingv1.SchemeGroupVersion)
	return serializer.NewCodecFactory(s)
}()

// newClient makes a client of the cluster that a configuration names. It reads files, and does no
// remote I/O.
func newClient(c *Config) (*client, error) {
	cfg, from, err := c.cluster()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath = &corev1.SchemeGroupVersion, "/api"
	cfg.NegotiatedSerializer = codecs.WithoutConversion()
	cfg.UserAgent = "execbroker"
	cfg.QPS = -1 // the API server has its own priorities and fairness
	cfg.WarningHandler = rest.NoWarnings{}
	if p := cfg.ExecProvider; p != nil {
		p.StdinUnavailable, p.StdinUnavailableMessage = true, "execbroker does not ask for passwords"
	}
	t, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	tls, err := transport.TLSConfigFor(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	// A transport of its own, which close closes: that of client-go is shared by the whole program
	// and never let go of.
	h := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tls, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16}
	if cfg.Proxy != nil {
		h.Proxy = cfg.Proxy
	}
	wrapped, err := transport.HTTPWrappersForConfig(t, h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	r, err := rest.RESTClientForConfigAndClient(cfg, &http.Client{Transport: wrapped})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return &client{cfg: cfg, rest: r, transport: h, namespace: c.Namespace, from: from}, nil
}

// cluster returns where the cluster is, and what said so.
func (c *Config) cluster() (cfg *rest.Config, from string, err error) {
	switch {
	case c.InCluster:
		cfg, err = rest.InClusterConfig()
		return cfg, "in_cluster", err
	case c.Server != "":
		cfg = &rest.Config{Host: c.Server, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CA}}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{c.Token, next} })
		return cfg, "server", nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	from = "kubeconfig"
	if c.Kubeconfig != "" {
		rules.ExplicitPath = c.Kubeconfig
		from += " " + c.Kubeconfig
	}
	if c.Context != "" {
		from += ", context " + c.Context
	}
	cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		err = errors.New("there is none, and this program does not run in a pod; set kubeconfig, or server and token")
	}
	return cfg, from, err
}

// bearer adds a token to each request, which it reads anew: tokens are renewed.
type bearer struct {
	token driver.Secret
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token.Value()
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, &tokenError{err}
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}

// tokenError says that there is no token to send.
type tokenError struct{ err error }

func (e *tokenError) Error() string { return "token: " + e.err.Error() }

// close lets go of the connections.
func (c *client) close() { c.transport.CloseIdleConnections() }

// silent is ctx for calls of client-go, which would otherwise write a log of its own.
func silent(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// answer bounds a request.
func answer(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(silent(ctx), requestTimeout, errNoAnswer)
}

// create makes a pod. With dry it only asks whether the cluster would. It may return a pod although
// ctx has ended.
func (c *client) create(ctx context.Context, pod *corev1.Pod, dry bool) (*corev1.Pod, error) {
	lctx, stop := driver.Linger(ctx)
	defer stop()
	ctx, cancel := answer(lctx)
	defer cancel()
	r := c.rest.Post().Namespace(c.namespace).Resource("pods").Body(pod)
	if dry {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	made := &corev1.Pod{}
	err := r.Do(ctx).Into(made)
	return made, cut(ctx, err)
}

// get returns a pod.
func (c *client) get(ctx context.Context, name string) (*corev1.Pod, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	pod := &corev1.Pod{}
	err := c.rest.Get().Namespace(c.namespace).Resource("pods").Name(name).Do(ctx).Into(pod)
	return pod, cut(ctx, err)
}

// page is how many pods are asked for at a time.
const page = 500

// list calls each for every pod with a label, until it returns false.
func (c *client) list(ctx context.Context, selector string, each func(*corev1.Pod) bool) error {
	for next := ""; ; {
		var pods corev1.PodList
		actx, cancel := answer(ctx)
		r := c.rest.Get().Namespace(c.namespace).Resource("pods").Param("labelSelector", selector).Param("limit", strconv.Itoa(page))
		if next != "" {
			r = r.Param("continue", next)
		}
		err := cut(actx, r.Do(actx).Into(&pods))
		cancel()
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if !each(&pods.Items[i]) {
				return nil
			}
		}
		if next = pods.Continue; next == "" {
			return nil
		}
	}
}

// watch tells what happens to a pod after a version of it, until ctx ends. Without a version the
// first events say what it is now.
func (c *client) watch(ctx context.Context, name, version string) (watch.Interface, error) {
	r := c.rest.Get().Namespace(c.namespace).Resource("pods").Param("watch", "1").Param("fieldSelector", "metadata.name="+name)
	if version != "" {
		r = r.Param("resourceVersion", version)
	}
	return r.Watch(silent(ctx))
}

// grace is how many seconds a pod that is deleted has. Without any, the object is gone at once, and
// the node ends the code when it gets to it.
const grace = 1

// delete asks for a pod to be deleted: that with a UID, if there is one.
func (c *client) delete(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := answer(ctx)
	defer cancel()
	seconds := int64(grace)
	o := &metav1.DeleteOptions{GracePeriodSeconds: &seconds}
	if uid != "" {
		o.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	err := c.rest.Delete().Namespace(c.namespace).Resource("pods").Name(name).Body(o).Do(ctx).Error()
	return cut(ctx, err)
}

// events returns what is known of the life of a pod beside its status.
func (c *client) events(ctx context.Context, uid types.UID) ([]corev1.Event, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	var list corev1.EventList
	err := c.rest.Get().Namespace(c.namespace).Resource("events").
		Param("fieldSelector", "involvedObject.uid="+string(uid)).Param("limit", "100").Do(ctx).Into(&list)
	return list.Items, cut(ctx, err)
}

// review asks whether this program may do something.
func (c *client) review(ctx context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	a.Namespace = c.namespace
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	err := c.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").Body(r).Do(ctx).Into(r)
	return r.Status.Allowed, cut(ctx, err)
}

// version asks what the API server is.
func (c *client) version(ctx context.Context) (*version.Info, error) {
	ctx, cancel := answer(ctx)
	defer cancel()
	raw, err := c.rest.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return nil, cut(ctx, err)
	}
	return parseVersion(raw)
}

// execURL is where a process in the container of a pod is started.
func (c *client) execURL(pod string, command []string) *url.URL {
	r := c.rest.Get().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("exec").
		Param("container", containerName).Param("stdin", "true").Param("stdout", "true").Param("stderr", "true")
	for _, arg := range command {
		r = r.Param("command", arg)
	}
	return r.URL()
}
