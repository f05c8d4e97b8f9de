package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// release is one that was installed.
type release struct {
	*desk
	name, namespace, sandboxes string
	key                        string
	client                     *http.Client
}

// release returns a release by its name, with the key of a client.
func (d *desk) release(name, namespace, sandboxes string) *release {
	d.Helper()
	key := d.run("kubectl -n " + namespace + " get secret execbroker-keys -o jsonpath='{.data.api-keys}' | base64 -d")
	transport := &http.Transport{DisableKeepAlives: true} // each request goes to whoever is ready then
	d.Cleanup(transport.CloseIdleConnections)
	return &release{desk: d, name: name, namespace: namespace, sandboxes: sandboxes, key: key, client: &http.Client{Transport: transport, Timeout: patience}}
}

// in returns the same release for a subtest.
func (r *release) in(t *testing.T) *release {
	d, same := *r.desk, *r
	d.T, same.desk = t, &d
	return &same
}

// addresses returns those to which the service leads now, as the proxies of nodes learn them.
func (r *release) addresses() ([]string, error) {
	var lists discoveryv1.EndpointSliceList
	if err := r.get("/apis/discovery.k8s.io/v1/namespaces/"+r.namespace+"/endpointslices?labelSelector=kubernetes.io/service-name%3D"+r.name, &lists); err != nil {
		return nil, err
	}
	var all []string
	for _, s := range lists.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				all = append(all, e.Addresses...)
			}
		}
	}
	return all, nil
}

// ready waits until the service leads to n replicas.
func (r *release) ready(n int) []string {
	r.Helper()
	var all []string
	if err := r.until(func() (err error) {
		if all, err = r.addresses(); err == nil && len(all) != n {
			err = fmt.Errorf("%d replicas are ready, want %d", len(all), n)
		}
		return err
	}); err != nil {
		r.Fatal(err)
	}
	return all
}

// turn runs code in a conversation at one replica, by the name of the service.
func (r *release) turn(address, conversation, id, code string) (string, error) {
	body, err := json.Marshal(map[string]any{"id": id, "code": code, "timeout_seconds": 120})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+address+":3000/v1/conversations/"+conversation+"/run", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Host = r.name + "." + r.namespace + ".svc"
	req.Header.Set("Authorization", "Bearer "+r.key)
	res, err := r.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", res.Status, raw)
	}
	var answer struct{ Stdout string }
	err = json.Unmarshal(raw, &answer)
	return answer.Stdout, err
}
