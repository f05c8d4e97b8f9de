package dockertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
)

// Proxy stands between a client and an engine. It shows what a protection is worth by taking it
// away.
type Proxy struct {
	Host   string // where clients reach it
	server *http.Server
	dir    string
	done   chan struct{}
}

// NewProxy starts a proxy in front of the engine at host, which listens on a Unix socket. edit may
// change the request that makes a container, by the names of the engine's API.
func NewProxy(host string, edit func(create map[string]any)) (*Proxy, error) {
	path, ok := strings.CutPrefix(host, "unix://")
	if !ok {
		return nil, fmt.Errorf("%s: want a Unix socket", host)
	}
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketFile))
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	rp := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine"
			if r.In.Method == http.MethodPost && strings.HasSuffix(r.In.URL.Path, "/containers/create") {
				r.Out.Body, r.Out.ContentLength = rewritten(r.In.Body, edit)
			}
		},
		Transport:     transport,
		FlushInterval: -1, // what the engine says it says at once
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	p := &Proxy{Host: "unix://" + l.Addr().String(), server: &http.Server{Handler: rp}, dir: dir, done: make(chan struct{})}
	go func() { // Close waits for it
		defer close(p.done)
		p.server.Serve(l)
		transport.CloseIdleConnections()
	}()
	return p, nil
}

// rewritten edits a request to make a container. What cannot be read is passed on for the engine to
// judge.
func rewritten(body io.ReadCloser, edit func(map[string]any)) (io.ReadCloser, int64) {
	defer body.Close()
	raw, err := io.ReadAll(body)
	var m map[string]any
	if err == nil && json.Unmarshal(raw, &m) == nil {
		edit(m)
		if b, err := json.Marshal(m); err == nil {
			raw = b
		}
	}
	return io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
}

// Close ends the proxy and what goes through it.
func (p *Proxy) Close() error {
	err := p.server.Close()
	<-p.done
	os.RemoveAll(p.dir)
	return err
}
