package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// proxy is a proxy as companies have them.
type proxy struct {
	login     string // that it wants, USER:PASSWORD
	authority string // a file with the certificate by whose key it signs those of other hosts
	sign      func(host string) (*tls.Certificate, error)
}

// silent is for clients that do not trust the proxy, and say so themselves.
var silent = log.New(io.Discard, "", 0)

// serve serves at l until the test ends.
func (p *proxy) serve(t *testing.T, l net.Listener) {
	there := &http.Transport{}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.answer(there, w, r) }), ReadHeaderTimeout: time.Minute}
	go s.Serve(l) //nolint:errcheck // it ends with the test
	t.Cleanup(func() {
		s.Close()
		there.CloseIdleConnections()
	})
}

func (p *proxy) answer(there *http.Transport, w http.ResponseWriter, r *http.Request) {
	if p.login != "" && r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(p.login)) {
		w.Header().Set("Proxy-Authenticate", "Basic realm=proxy")
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	forward := &httputil.ReverseProxy{Transport: there, ErrorLog: silent, Rewrite: func(*httputil.ProxyRequest) {}}
	if r.Method != http.MethodConnect {
		forward.ServeHTTP(w, r)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if p.sign == nil {
		host, err := net.Dial("tcp", r.Host)
		if err != nil {
			io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") //nolint:errcheck // it has gone
			return
		}
		defer host.Close()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") //nolint:errcheck // the copies notice
		go func() {
			io.Copy(host, conn) //nolint:errcheck // either end may go
			host.(*net.TCPConn).CloseWrite()
		}()
		io.Copy(conn, host) //nolint:errcheck // either end may go
		return
	}
	io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") //nolint:errcheck // the handshake notices
	forward.Rewrite = func(out *httputil.ProxyRequest) { out.Out.URL.Scheme, out.Out.URL.Host = "https", r.Host }
	one := &once{conn: tls.Server(conn, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return p.sign(h.ServerName) }}), closed: make(chan struct{})}
	s := &http.Server{Handler: forward, ErrorLog: silent, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, c http.ConnState) {
		if c == http.StateClosed {
			close(one.closed)
		}
	}}
	s.Serve(one) //nolint:errcheck // it ends with the connection
}

// once is a listener with one connection.
type once struct {
	conn   net.Conn
	closed chan struct{}
}

func (o *once) Accept() (net.Conn, error) {
	if c := o.conn; c != nil {
		o.conn = nil
		return c, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *once) Close() error   { return nil }
func (o *once) Addr() net.Addr { return &net.TCPAddr{} }

// newReader returns a proxy that reads what goes through it.
func newReader(t *testing.T) *proxy {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Proxy"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{authority: filepath.Join(t.TempDir(), "authority.pem")}
	if err := os.WriteFile(p.authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	p.sign = func(host string) (*tls.Certificate, error) {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, key)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
	}
	return p
}
