package kubetest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// Do sends a request of the administrator to the API server, with a body in YAML or JSON, and
// returns the answer. What is not successful is an error with what the API server said.
func (c *Cluster) Do(ctx context.Context, method, path, body string) ([]byte, error) {
	ca, err := os.ReadFile(c.key("ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(c.key("admin.crt"), c.key("admin.key"))
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(ctx, method, server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, res.Status, tail(text))
	}
	return text, err
}

// NewNamespace makes a namespace for sandboxes and returns its name.
func (c *Cluster) NewNamespace(ctx context.Context) (string, error) {
	name := "test-" + strings.ToLower(rand.Text()[:10])
	_, err := c.Do(ctx, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name))
	if err == nil {
		// Pods are refused until the namespace has its service account.
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		err = until(ctx, func() error {
			_, err := c.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+name+"/serviceaccounts/default", "")
			return err
		})
	}
	return name, err
}
