package docker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem, _ = issue(t, nil)
	return a
}

// issue makes a certificate for 127.0.0.1, signed by a, or by itself if there is none.
func issue(t *testing.T, a *authority) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a == nil,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if a != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	k, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: k}))
}

// Both sides show who they are: an engine that anybody may use is root for everybody, and one that
// anybody may pose as gets the code.
func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	_, _, cert, key := issue(t, ours)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(ours.cert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", minAPI) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients, MinVersion: tls.VersionTLS12}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what is tested
	s.StartTLS()
	defer s.Close()

	dir := t.TempDir()
	write(t, dir, "ours-ca.pem", ours.pem)
	write(t, dir, "theirs-ca.pem", theirs.pem)
	for name, a := range map[string]*authority{"ours": ours, "theirs": theirs} {
		_, _, cert, key := issue(t, a)
		write(t, dir, name+".pem", cert)
		write(t, dir, name+"-key.pem", key)
	}
	for name, c := range map[string]struct {
		ca, client string
		ok         bool
	}{
		"both-known":      {"ours", "ours", true},
		"unknown-engine":  {"theirs", "ours", false},
		"unknown-client":  {"ours", "theirs", false},
		"public-and-ours": {"", "ours", false}, // no authority of the system has signed a test
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Host: "tcp://" + s.Listener.Addr().String(), TLS: &TLS{Cert: filepath.Join(dir, c.client+".pem"), Key: filepath.Join(dir, c.client+"-key.pem")}}
			if c.ca != "" {
				cfg.TLS.CA = filepath.Join(dir, c.ca+"-ca.pem")
			}
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			at, err := cfg.endpoint(processEnvironment())
			if err != nil {
				t.Fatal(err)
			}
			e, err := at.client()
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, err = e.Ping(t.Context(), client.PingOptions{}); (err == nil) != c.ok {
				t.Errorf("got %v, want success %v", err, c.ok)
			}
		})
	}
}
