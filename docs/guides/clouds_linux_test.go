package guides

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execbroker/execbroker/docker"
	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/flymachines/flytest"
	"github.com/execbroker/execbroker/server/e2b"
	"github.com/execbroker/execbroker/server/e2b/e2btest"
)

// stand gives an image of the tests a further name, which the guides use.
func stand(t *testing.T, engine, image, name string) {
	t.Helper()
	undo, err := dockertest.Name(t.Context(), engine, image, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := undo(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// clouds starts what stands in for E2B and Fly under their own names, and returns the environment
// that leads there.
func clouds(t *testing.T, engine string) []string {
	t.Helper()
	at, err := e2btest.Start(t.Context(), e2btest.Options{
		Owner:  "guides-" + strings.ToLower(rand.Text()),
		Docker: docker.Config{Host: engine},
		Server: e2b.Config{Keys: []string{"..."}, Domain: "e2b.app"}, // the key that the guide has
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := at.Close(); err != nil {
			t.Error(err)
		}
	})
	const token = "fm2_0123456789abcdef"
	fly, err := flytest.New(t.Context(), flytest.Config{Engine: engine, Tokens: []string{token}, Apps: []flytest.App{{Name: "my-sandboxes"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fly.Close(); err != nil {
			t.Error(err)
		}
	})
	proxy, authority := internet(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "api.machines.dev" {
			fly.ServeHTTP(w, r)
			return
		}
		at.Handler.ServeHTTP(w, r)
	}, "api.machines.dev", "e2b.app", "*.e2b.app")
	return []string{"HTTPS_PROXY=" + proxy, "SSL_CERT_FILE=" + authority, "NPM_CONFIG_HTTPS_PROXY=", "FLY_API_TOKEN=" + token}
}

// internet serves h under names over TLS. Who has the proxy and the authority in the environment
// meets it there; other names are not reached by that proxy.
func internet(t *testing.T, h http.HandlerFunc, names ...string) (proxy, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	authority = filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	far := httptest.NewUnstartedServer(h)
	far.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	far.EnableHTTP2 = true
	far.StartTLS()
	t.Cleanup(far.Close)
	var tunnels sync.WaitGroup
	t.Cleanup(tunnels.Wait) // their clients have ended
	near := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		tunnels.Add(1) // Close of near does not wait for what is hijacked
		defer tunnels.Done()
		if r.Method != http.MethodConnect || c.VerifyHostname(host) != nil {
			http.Error(w, "no such host", http.StatusBadGateway)
			return
		}
		to, err := net.Dial("tcp", far.Listener.Addr().String())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			to.Close()
			return
		}
		_, _ = io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n")
		tunnels.Go(func() { defer to.Close(); _, _ = io.Copy(to, from) })
		tunnels.Go(func() { defer from.Close(); _, _ = io.Copy(from, to) })
	}))
	t.Cleanup(near.Close)
	return near.URL, authority
}

// TestTunnelsAreOrdered ends tunnels while their cleanup begins: the race detector sees whether
// that waits for each, since the server does not wait for connections that were hijacked.
func TestTunnelsAreOrdered(t *testing.T) {
	for range 50 {
		t.Run("tunnel", func(t *testing.T) {
			proxy, _ := internet(t, http.NotFound, "example.com")
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(proxy, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() }) // the first
			if _, err := io.WriteString(conn, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(answer, " 200 ") {
				t.Fatalf("got %q, %v, want a tunnel", answer, err)
			}
		})
	}
}
