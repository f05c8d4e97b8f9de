// Package front is the first handler of every HTTP server of the module. It gives each request an
// ID, which the client gets and the log contains, so that the two can be matched. It also refuses
// requests that a web page makes a browser send to a server of another origin. And it bounds how
// long a server waits for a client, and how many connections it has: see Bounded and Limits.
//
// Two checks refuse requests of web pages. Requests that a browser marks as cross-site are refused
// if they may change something. And the host name must be one of the server's names: if a page
// points its own name at this machine (DNS rebinding), the browser considers it the same origin,
// and only the host name shows the attack.
package front

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Policy says which names a server has. The zero value allows those of loopback: localhost, the
// names below it, 127.0.0.0/8 and ::1.
type Policy struct {
	// Hosts are further names and addresses, without ports. "*" allows every name. It is for
	// servers behind something that checks the name.
	Hosts []string
	// Below matches the labels that may precede one of Hosts, such as those of sandboxes. Nil:
	// none.
	Below *regexp.Regexp
	// Origins are the origins, such as https://app.example, whose web pages may use the server with
	// a key. Their requests are not refused, and their scripts can read the answers. Nil: none.
	Origins []string
	// BodyTime is the body time of Bounded. Zero: DefaultBodyTime.
	BodyTime time.Duration
}

// Check returns an error if an entry of Hosts is neither a name nor an address, or an entry of
// Origins is no origin.
func (p Policy) Check() error {
	for _, h := range p.Hosts {
		if _, err := netip.ParseAddr(h); err != nil && h != "*" && !hostForm.MatchString(h) {
			return fmt.Errorf("%q is no host name or address; want one without scheme and port", h)
		}
	}
	for _, o := range p.Origins {
		if u, err := url.Parse(o); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Contains(u.Host, "*") || o != strings.ToLower(u.Scheme+"://"+u.Host) {
			return fmt.Errorf("%q is no origin; want one such as https://app.example, in lower case and without a path", o)
		}
	}
	return nil
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*$`)

// Handler returns next with the checks and the limits of Bounded in front. Refused requests go to
// refuse, with the status and the message for the client. Both handlers get requests with an ID,
// and answers tell browsers not to guess their type.
func (p Policy) Handler(next http.Handler, refuse func(w http.ResponseWriter, r *http.Request, status int, message string)) http.Handler {
	cross := http.NewCrossOriginProtection()
	for _, o := range p.Origins {
		_ = cross.AddTrustedOrigin(o) // Check has checked it
	}
	return Bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = named(w, r)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		status, message := 0, ""
		switch {
		case !p.allows(r.Host):
			status = http.StatusMisdirectedRequest
			message = fmt.Sprintf("the host %.100q is not a name of this server; it answers to localhost and to the names in its configuration", r.Host)
		case cross.Check(r) != nil:
			status, message = http.StatusForbidden, "the request is from a web page of another origin"
		case p.share(w, r):
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			next.ServeHTTP(w, r)
			return
		}
		refuse(w, r, status, message)
	}), cmp.Or(p.BodyTime, DefaultBodyTime))
}

// CrossOrigin reports whether a browser has sent r for a web page of another origin, whatever its
// method: such a page may open a WebSocket, with a request that changes nothing by itself.
func CrossOrigin(r *http.Request) bool {
	q := r.Clone(r.Context())
	q.Method = http.MethodPost
	return http.NewCrossOriginProtection().Check(q) != nil
}

// share lets scripts of a listed origin read the answer. It reports whether the request is a
// preflight, which only asks for permission. An origin is never repeated unless it is listed, and
// cookies are never allowed: a key is what authorizes a request.
func (p Policy) share(w http.ResponseWriter, r *http.Request) (preflight bool) {
	if len(p.Origins) == 0 {
		return false
	}
	h, origin := w.Header(), r.Header.Get("Origin")
	h.Add("Vary", "Origin")
	if !slices.Contains(p.Origins, origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", RequestIDHeader+", Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-API-Key, "+RequestIDHeader)
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// allows reports whether a Host header names this server.
func (p Policy) allows(host string) bool {
	name := strings.ToLower(strings.TrimSuffix(withoutPort(host), "."))
	if name == "" {
		return false
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	first, rest, dotted := strings.Cut(name, ".")
	for _, h := range p.Hosts {
		other, no := netip.ParseAddr(h)
		switch h = strings.ToLower(h); {
		case h == "*", h == name, err == nil && no == nil && other.Unmap() == ip.Unmap():
			return true
		case dotted && no != nil && p.Below != nil && h == rest && p.Below.MatchString(first):
			return true
		}
	}
	return false
}

func withoutPort(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
