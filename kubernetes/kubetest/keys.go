package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of a cluster.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes an authority whose files are in dir.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.key = key
	a.cert = template(pkix.Name{CommonName: "kubetest"})
	a.cert.IsCA, a.cert.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	return a, a.write("ca", a.cert, key)
}

func template(name pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: name, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
	}
}

// issue makes a certificate for a server and client of a name, with the files NAME.crt and
// NAME.key.
func (a *authority) issue(file, name string, groups []string, at ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c := template(pkix.Name{CommonName: name, Organization: groups})
	c.KeyUsage = x509.KeyUsageDigitalSignature
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, where := range at {
		if ip := net.ParseIP(where); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, where)
		}
	}
	return a.write(file, c, key)
}

// write signs a certificate and writes it with its key.
func (a *authority) write(file string, c *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	put := func(ext, kind string, der []byte) error {
		return os.WriteFile(filepath.Join(a.dir, file+ext), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return errors.Join(put(".crt", "CERTIFICATE", der), put(".key", "PRIVATE KEY", secret), put(".pub", "PUBLIC KEY", public))
}

// kubeconfig writes the kubeconfig of a certificate and returns its path.
func (a *authority) kubeconfig(file, server string) (string, error) {
	at := filepath.Join(a.dir, file+".conf")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: kubetest, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: %s, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: kubetest, context: {cluster: kubetest, user: %[3]s}}]
current-context: kubetest
`, server, filepath.Join(a.dir, "ca.crt"), file, filepath.Join(a.dir, file+".crt"), filepath.Join(a.dir, file+".key"))
	return at, os.WriteFile(at, []byte(text), 0o600)
}
