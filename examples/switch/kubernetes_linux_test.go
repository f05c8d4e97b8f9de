package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/kubernetes/kubetest"
)

// TestKubernetes runs on a real cluster, with the same file except for where that is.
func TestKubernetes(t *testing.T) {
	c, err := kubetest.Open(t.Context(), dockertest.Python)
	if errors.Is(err, kubetest.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	namespace, err := c.NewNamespace(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg := parse(t, "kubernetes.yaml")
	for key, value := range map[string]string{"kubeconfig": c.Kubeconfig, "namespace": namespace, "image": dockertest.Python, "pull": "never"} {
		cfg.Backends["code"].Settings[key] = json.RawMessage(strconv.Quote(value))
	}
	cfg.Backends["code"].Settings["requests"] = json.RawMessage("0.1") // the node is small
	check(t, cfg)
}
