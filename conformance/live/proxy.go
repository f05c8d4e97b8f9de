package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"
)

// createTime bounds a create: a service answers within seconds.
const createTime = 90 * time.Second

// unknown begins the name of a sandbox whose create was not answered. No service has such an ID.
const unknown = "unknown "

// maxBody bounds what is read of a request or an answer of a control plane.
const maxBody = 64 << 20

// proxy passes requests on to the control plane of a service. It listens on loopback: who reaches
// it still needs the key.
type proxy struct {
	url   string
	svc   *service
	meter *meter
	rec   *recorder
	next  *http.Transport

	server  *http.Server
	serving sync.WaitGroup
}

// startProxy starts one. It keeps no connection to the service: the suite counts what is left open
// in this process.
func startProxy(svc *service, m *meter, rec *recorder) (*proxy, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives, t.DisableCompression = true, true
	p := &proxy{svc: svc, meter: m, rec: rec, next: t}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.url = "http://" + l.Addr().String()
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Transport: p,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(svc.upstream) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			panic(http.ErrAbortHandler) // as without the proxy: a connection that ends
		},
	}}
	p.serving.Go(func() { _ = p.server.Serve(l) }) // ends with Close
	return p, nil
}

func (p *proxy) close() {
	p.server.Close()
	p.serving.Wait()
}

// RoundTrip implements http.RoundTripper: it counts what a request makes and ends, and records it.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := readBody(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(sent))
	r.ContentLength = int64(len(sent))
	c := p.svc.meaning(r, sent)
	began, rate := time.Now(), 0.0
	if c.create {
		if rate = p.svc.price.rate(sent); rate < 0 {
			p.meter.stop(fmt.Errorf("the price of a sandbox is not known: %w", errMoney))
			return refusal(r, errMoney), nil
		}
		if err := p.meter.admit(rate); err != nil {
			return refusal(r, err), nil
		}
	}
	id := "" // of the sandbox that was made
	if c.create {
		id = fmt.Sprintf("%s%p", unknown, r) // until an answer says otherwise it may have been made, and costs
		// Whoever asked may give up. What comes of it is still to be known, and to be removed.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), createTime)
		defer cancel()
		r = r.WithContext(ctx)
		defer func() { p.meter.began(id, sandbox{since: began, rate: rate, until: c.until()}) }()
	}
	res, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := readBody(res.Body)
	if err != nil {
		return nil, err
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(got)), int64(len(got))
	p.rec.add("", r, sent, res, got)
	switch {
	case c.create && res.StatusCode < 300:
		id = idOf(got)
	case c.create && res.StatusCode < 500 && res.StatusCode != http.StatusRequestTimeout:
		id = "" // it was refused
	case c.destroy && (res.StatusCode < 300 || res.StatusCode == http.StatusNotFound):
		p.meter.gone(c.id)
	case c.id != "" && c.seconds > 0 && res.StatusCode < 300:
		p.meter.extended(c.id, c.until())
	}
	return res, nil
}

// idOf returns the ID of the sandbox that an answer tells of.
func idOf(answer []byte) string {
	var made struct{ ID, SandboxID string }
	if json.Unmarshal(answer, &made) != nil {
		return ""
	}
	return made.ID + made.SandboxID
}

// readBody reads a body that may be nil.
func readBody(b io.ReadCloser) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	defer b.Close()
	data, err := io.ReadAll(io.LimitReader(b, maxBody+1))
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("more than %d bytes", maxBody)
	}
	return data, err
}

// refusal is the answer to a create that would go beyond a bound.
func refusal(r *http.Request, why error) *http.Response {
	text := fmt.Sprintf(`{"code":402,"error":%[1]q,"message":%[1]q}`, "the live kit of execbroker: "+why.Error())
	return &http.Response{
		Status: "402 Payment Required", StatusCode: http.StatusPaymentRequired, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// answer is what a service has said.
type answer struct {
	status int
	header http.Header
	body   []byte
	scrub  *scrubber
}

// String is the beginning of what can be published of it.
func (a *answer) String() string {
	const most = 300
	text := strings.Join(strings.Fields(a.scrub.body(a.body)), " ")
	return strings.TrimSpace(fmt.Sprintf("%d %s", a.status, strings.ToValidUTF8(text[:min(len(text), most)], "")))
}

// ask sends a request that the proxy counts and records under a name.
func (p *proxy) ask(ctx context.Context, name, method, path string, body []byte, header http.Header) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, p.svc.upstream.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	p.svc.authorize(r.Header)
	for k, v := range header {
		r.Header[k] = v
	}
	if len(body) > 0 && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := p.RoundTrip(r) //nolint:bodyclose // readBody closes it
	if err != nil {
		return nil, err
	}
	got, err := readBody(res.Body)
	if err != nil {
		return nil, err
	}
	if name != "" {
		p.rec.add(name, r, body, res, got)
	}
	return &answer{res.StatusCode, res.Header, got, p.rec.scrub}, nil
}

// destroy removes a sandbox whose end was not seen. Of one whose create was not answered the ID is
// not known: its owner's list has it.
func (p *proxy) destroy(ctx context.Context, id string) error {
	if strings.HasPrefix(id, unknown) {
		p.meter.gone(id)
		return nil
	}
	path, err := p.svc.removal(id)
	if err != nil {
		return err
	}
	a, err := p.ask(ctx, "", http.MethodDelete, path, nil, nil)
	if err == nil && a.status >= 300 && a.status != http.StatusNotFound {
		err = errors.New(http.StatusText(a.status))
	}
	return err
}
