package kubetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// server is the address of the API server. Its port is that of its service, so that it answers at
// the address of the service, too.
const server = "https://" + nodeIP + ":443"

// files makes directories, keys and configurations.
func (c *Cluster) files(context.Context) (err error) {
	for _, name := range []string{"etcd", "run", "keys", "kubelet", "log", "cni", "containerd"} {
		err = errors.Join(err, os.MkdirAll(c.path(name), 0o755))
	}
	if err != nil {
		return err
	}
	if c.keys, err = newAuthority(c.path("keys")); err != nil {
		return err
	}
	admins := []string{"system:masters"}
	err = errors.Join(
		c.keys.issue("apiserver", "kube-apiserver", nil, "127.0.0.1", nodeIP, serviceIP, "localhost"),
		c.keys.issue("accounts", "service-accounts", nil),
		c.keys.issue("admin", "admin", admins),
		c.keys.issue("controllers", "system:kube-controller-manager", nil),
		c.keys.issue("scheduler", "system:kube-scheduler", nil),
		c.keys.issue("kubelet", "system:node:"+NodeName, []string{"system:nodes"}, nodeIP, NodeName),
		c.keys.issue("to-kubelet", "kube-apiserver-kubelet-client", admins),
	)
	for _, name := range []string{"admin", "controllers", "scheduler", "kubelet"} {
		at, werr := c.keys.kubeconfig(name, server)
		if err = errors.Join(err, werr); name == "admin" {
			c.Kubeconfig = at
		}
	}
	put := func(name, text string) { err = errors.Join(err, os.WriteFile(c.path(name), []byte(text), 0o644)) }
	put("kubelet.yaml", c.kubeletConfig())
	put("containerd.toml", c.containerdConfig())
	put("cni/10-kubetest.conflist", `{"cniVersion":"1.0.0","name":"kubetest","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"hairpinMode":true,
"ipam":{"type":"host-local","dataDir":"/run/cni","ranges":[[{"subnet":"`+podRange+`"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`)
	return err
}

// maxProcesses is how many processes a pod may have on the node.
const maxProcesses = 400

func (c *Cluster) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[2]s/keys/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: %[2]s/keys/kubelet.crt
tlsPrivateKeyFile: %[2]s/keys/kubelet.key
cgroupDriver: cgroupfs
cgroupRoot: /%[3]s
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://%[2]s/run/containerd.sock
podPidsLimit: %[4]d
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 99
imageGCLowThresholdPercent: 98
nodeStatusUpdateFrequency: 5s
healthzBindAddress: 127.0.0.1
serializeImagePulls: false
maxPods: 250
resolvConf: ""
kubeAPIQPS: 100
kubeAPIBurst: 200
`, nodeIP, c.dir, groupName, maxProcesses)
}

func (c *Cluster) containerdConfig() string {
	return fmt.Sprintf(`version = 2
root = "%[1]s/containerd"
state = "%[1]s/run/containerd"
[grpc]
  address = "%[1]s/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[3]q
  restrict_oom_score_adj = true # a machine may lack CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[2]q
    conf_dir = "%[1]s/cni"
`, c.dir, c.programs, pauseImage)
}

// key is the file of a key.
func (c *Cluster) key(name string) string { return c.path("keys", name) }

// control starts the control plane.
func (c *Cluster) control(ctx context.Context) error {
	if err := c.start("etcd", "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--listen-client-urls", "http://127.0.0.1:2379",
		"--advertise-client-urls", "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380"); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return errors.Join(
		c.start("kube-controller-manager", "--kubeconfig="+c.key("controllers.conf"), "--service-account-private-key-file="+c.key("accounts.key"),
			"--root-ca-file="+c.key("ca.crt"), "--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1"),
		c.start("kube-scheduler", "--kubeconfig="+c.key("scheduler.conf"), "--leader-elect=false", "--bind-address=127.0.0.1"),
	)
}

// StartAPIServer starts the API server, again after Kill, and waits until it answers.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	err := c.start(APIServer, "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--advertise-address="+nodeIP, "--secure-port=443",
		"--tls-cert-file="+c.key("apiserver.crt"), "--tls-private-key-file="+c.key("apiserver.key"), "--client-ca-file="+c.key("ca.crt"),
		"--service-account-key-file="+c.key("accounts.pub"), "--service-account-signing-key-file="+c.key("accounts.key"),
		"--service-account-issuer=https://kubetest", "--service-cluster-ip-range="+services, "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+c.key("ca.crt"), "--kubelet-client-certificate="+c.key("to-kubelet.crt"), "--kubelet-client-key="+c.key("to-kubelet.key"))
	if err != nil {
		return err
	}
	return c.await(ctx, APIServer, func(ctx context.Context) error {
		_, err := c.Do(ctx, http.MethodGet, "/readyz", "")
		return err
	})
}

// StartKubelet starts the kubelet, again after Kill, and waits until the node is ready.
func (c *Cluster) StartKubelet(ctx context.Context) error {
	err := c.start(Kubelet, "--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.key("kubelet.conf"), "--hostname-override="+NodeName,
		"--node-ip="+nodeIP, "--root-dir="+c.path("kubelet"), "--cert-dir="+c.path("keys"))
	if err != nil {
		return err
	}
	return c.await(ctx, Kubelet, func(ctx context.Context) error {
		node, err := c.Do(ctx, http.MethodGet, "/api/v1/nodes/"+NodeName, "")
		if err == nil && !strings.Contains(string(node), `"reason":"KubeletReady"`) {
			err = errors.New("the node is not ready")
		}
		if err == nil { // which may be what the last kubelet has said
			_, err = c.Do(ctx, http.MethodGet, "/api/v1/nodes/"+NodeName+"/proxy/healthz", "")
		}
		return err
	})
}

// node starts the kubelet and waits until pods can be made.
func (c *Cluster) node(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Dir(groups))
	if err != nil {
		return err
	}
	for _, dir := range found { // the hierarchies; the kubelet makes the rest, but not its root
		if err := ignoreExisting(os.Mkdir(filepath.Join(dir, groupName), 0o755)); err != nil {
			return err
		}
	}
	if err := copyCPUSets(); err != nil {
		return err
	}
	if err := c.StartKubelet(ctx); err != nil {
		return err
	}
	return c.await(ctx, "kube-controller-manager", func(ctx context.Context) error {
		_, err := c.Do(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", "")
		return err
	})
}
