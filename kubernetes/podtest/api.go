package podtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var podResource = schema.GroupResource{Resource: "pods"}

const maxBody = 3 << 20 // as the API server has it

// handler answers a request: with an object, or with an error of package apierrors.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

// routes are those of the API that there are.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	on := func(pattern string, status int, do handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.requests.Add(1)
			if r.Header.Get("Authorization") != "Bearer "+s.token {
				write(w, apierrors.NewUnauthorized("Unauthorized"), 0)
				return
			}
			if ns := r.PathValue("namespace"); ns != "" && ns != s.cfg.Namespace {
				write(w, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, ns), 0)
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			switch answer, err := do(w, r); {
			case err != nil:
				write(w, err, 0)
			case answer != nil:
				write(w, answer, status)
			}
		})
	}
	const pods = "/api/v1/namespaces/{namespace}/pods"
	on("GET /version", http.StatusOK, func(http.ResponseWriter, *http.Request) (any, error) {
		return map[string]string{"major": "1", "minor": "34", "gitVersion": "v1.34.3+podtest"}, nil
	})
	on("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", http.StatusCreated, review)
	on("POST "+pods, http.StatusCreated, s.create)
	on("GET "+pods, http.StatusOK, s.list)
	on("GET "+pods+"/{name}", http.StatusOK, s.get)
	on("DELETE "+pods+"/{name}", http.StatusOK, s.delete)
	on("GET "+pods+"/{name}/exec", http.StatusOK, s.exec)
	on("GET "+pods+"/{name}/attach", http.StatusOK, s.attach)
	const policies = "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
	on("POST "+policies, http.StatusCreated, s.createPolicy)
	on("GET "+policies+"/{name}", http.StatusOK, s.getPolicy)
	on("GET /api/v1/namespaces/{namespace}/events", http.StatusOK, func(http.ResponseWriter, *http.Request) (any, error) {
		return &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}, nil
	})
	return mux
}

// write answers. An error becomes the status that it says.
func write(w http.ResponseWriter, what any, status int) {
	if err, ok := what.(error); ok {
		var s *apierrors.StatusError
		if !errors.As(err, &s) {
			s = apierrors.NewInternalError(err)
		}
		said := s.Status()
		said.APIVersion, said.Kind = "v1", "Status"
		what, status = said, int(said.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // the client may have gone
}

// read reads a body.
func read(r *http.Request, into any) error {
	b, err := io.ReadAll(r.Body)
	if err == nil && len(b) > 0 {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// review allows everything.
func review(_ http.ResponseWriter, r *http.Request) (any, error) {
	v := &authorizationv1.SelfSubjectAccessReview{}
	err := read(r, v)
	v.Status.Allowed = true
	return v, err
}

// create makes a pod, or says why it would not.
func (s *Server) create(_ http.ResponseWriter, r *http.Request) (any, error) {
	made := &corev1.Pod{}
	if err := read(r, made); err != nil {
		return nil, err
	}
	if err := s.refuse(made); err != nil {
		return nil, err
	}
	dry := r.URL.Query().Get("dryRun") == metav1.DryRunAll
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[made.Name] != nil {
		return nil, apierrors.NewAlreadyExists(podResource, made.Name)
	}
	if n := len(s.pods); s.cfg.Pods > 0 && n >= s.cfg.Pods {
		return nil, apierrors.NewForbidden(podResource, made.Name, fmt.Errorf("exceeded quota: pods, requested: pods=1, used: pods=%d, limited: pods=%d", n, s.cfg.Pods))
	}
	made.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	made.Namespace, made.CreationTimestamp = s.cfg.Namespace, metav1.NewTime(time.Now().Truncate(time.Second))
	made.Status = corev1.PodStatus{Phase: corev1.PodPending}
	made.UID = types.UID(newUID())
	if dry {
		return made, nil
	}
	p := &pod{s: s, object: made, deleted: make(chan struct{})}
	s.pods[made.Name] = p
	p.tell("ADDED")
	s.work.Go(p.live)
	return p.object.DeepCopy(), nil
}

// refuse is admission, and what this node cannot do.
func (s *Server) refuse(p *corev1.Pod) error {
	no := func(format string, args ...any) error {
		return apierrors.NewBadRequest("podtest: " + fmt.Sprintf(format, args...))
	}
	switch {
	case p.Name == "":
		return no("metadata.name is required")
	case len(p.Spec.Containers) != 1 || len(p.Spec.InitContainers) > 0:
		return no("want one container")
	case p.Spec.RestartPolicy != corev1.RestartPolicyNever:
		return no("restartPolicy: want Never")
	case p.Spec.RuntimeClassName != nil:
		return apierrors.NewForbidden(podResource, p.Name, fmt.Errorf("pod rejected: RuntimeClass %q not found", *p.Spec.RuntimeClassName))
	}
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil {
			return no("volume %s: want memory with a size", v.Name)
		}
	}
	c := p.Spec.Containers[0].SecurityContext
	if c == nil || c.Capabilities == nil || c.ReadOnlyRootFilesystem == nil || c.AllowPrivilegeEscalation == nil {
		return no("securityContext: want capabilities, readOnlyRootFilesystem and allowPrivilegeEscalation")
	}
	if c.Privileged != nil && *c.Privileged {
		return no("privileged containers are not for tests")
	}
	if s.cfg.Baseline && slices.Contains(c.Capabilities.Add, "NET_ADMIN") {
		return apierrors.NewForbidden(podResource, p.Name, fmt.Errorf(
			"violates PodSecurity \"baseline:latest\": non-default capabilities (container %q must not include \"NET_ADMIN\" in securityContext.capabilities.add)", p.Spec.Containers[0].Name))
	}
	return nil
}

// find returns a pod.
func (s *Server) find(r *http.Request) (*pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	p := s.pods[name]
	if p == nil {
		return nil, apierrors.NewNotFound(podResource, name)
	}
	return p, nil
}

// get returns a pod as it is.
func (s *Server) get(_ http.ResponseWriter, r *http.Request) (any, error) {
	p, err := s.find(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.object.DeepCopy(), nil
}

// list returns the pods with a label by name, from the one that the last page ended with. With
// watch it tells what happens.
func (s *Server) list(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	if q.Get("watch") != "" {
		return nil, s.watch(w, r, strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name="))
	}
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit <= 0 {
		limit = math.MaxInt
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.pods {
		if name > q.Get("continue") && selector.Matches(labels.Set(p.object.Labels)) {
			list.Items = append(list.Items, *p.object.DeepCopy())
		}
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if len(list.Items) > limit {
		list.Items = list.Items[:limit]
		list.Continue = list.Items[limit-1].Name
	}
	return list, nil
}

// delete marks a pod. With a grace of zero it is gone at once, while its node still has to hear of
// it.
func (s *Server) delete(_ http.ResponseWriter, r *http.Request) (any, error) {
	var o metav1.DeleteOptions
	if err := read(r, &o); err != nil {
		return nil, err
	}
	p, err := s.find(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != p.object.UID {
		return nil, apierrors.NewConflict(podResource, p.object.Name, errors.New("the UID in the precondition is another one"))
	}
	grace := int64(30)
	switch {
	case o.GracePeriodSeconds != nil:
		grace = *o.GracePeriodSeconds
	case p.object.Spec.TerminationGracePeriodSeconds != nil:
		grace = *p.object.Spec.TerminationGracePeriodSeconds
	}
	p.markDeleted(grace)
	return p.object.DeepCopy(), nil
}

// watcher is told of changes.
type watcher struct {
	name  string // of a pod; empty: all
	queue []metav1.WatchEvent
	wake  chan struct{} // has one if there is something in queue
}

// watch tells what a pod is and what happens to it, until the client goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, name string) error {
	watching := &watcher{name: name, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	for _, p := range s.pods {
		watching.add("ADDED", p.object)
	}
	s.watchers[watching] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, watching)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for {
		if err := out.Flush(); err != nil {
			return nil // it is gone
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-s.life.Done():
			return nil
		case <-watching.wake:
		}
		s.mu.Lock()
		events := watching.queue
		watching.queue = nil
		s.mu.Unlock()
		for _, e := range events {
			if json.NewEncoder(w).Encode(e) != nil {
				return nil
			}
		}
	}
}

// add puts an event into the queue. The caller holds Server.mu.
func (w *watcher) add(kind string, object *corev1.Pod) {
	if w.name != "" && w.name != object.Name {
		return
	}
	w.queue = append(w.queue, metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: object.DeepCopy()}})
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
