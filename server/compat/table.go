package compat

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
)

// api describes the interface of another service.
type api struct {
	name    string
	keyless bool   // its clients can send no key
	alias   string // another name of the working directory, where the backend can have one
	// bases are the paths below that of the front under which clients expect the routes.
	bases  []string
	routes map[string]route // by the pattern of http.ServeMux, with a path below the base
	refuse func(refusal) any
}

// route is an operation of an interface. Exactly one of run and do is set.
type route struct {
	open bool // it needs no key
	run  *execution
	do   operation
}

// operation answers a request. A status of zero means that it has written the answer itself.
type operation func(*call) (status int, answer any, err error)

// execution is a route that runs code: decode reads the body, and encode makes the answer with
// status 200. decode gets hostile bytes, and does nothing but read them.
type execution struct {
	decode func(*call, []byte) (job, error)
	encode func(*call, job, *outcome) any
}

// call is a request whose client is known.
type call struct {
	*Server
	api    *api
	w      http.ResponseWriter
	r      *http.Request
	client server.Client
}

// refusal is the answer to a request that was not carried out.
type refusal struct {
	status int
	text   string
}

func (e refusal) Error() string { return e.text }

func bad(format string, args ...any) refusal {
	return refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// apis are the interfaces, in the order of Names.
var apis []*api

func init() { // not where it is declared: operations look into the table
	apis = []*api{&piston, &terrarium, &dify, &librechat, &judge0, &onyx}
}

// Names returns the names of the interfaces.
func Names() (names []string) {
	for _, a := range apis {
		names = append(names, a.name)
	}
	return names
}

func named(name string) *api {
	i := slices.IndexFunc(apis, func(a *api) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return apis[i]
}

// NeedKeys reports whether the clients of one of the fronts send keys, so that there have to be
// some.
func NeedKeys(fronts []Front) bool {
	return slices.ContainsFunc(fronts, func(f Front) bool {
		a := named(f.API)
		return a != nil && !a.keyless
	})
}

// Front serves an interface below a path.
type Front struct {
	API  string `json:"api"`            // one of Names
	Path string `json:"path,omitempty"` // "/piston"; empty: the root, which is then the only front
	// Subject is the subject of requests without a key. It may be set only with
	// AllowUnauthenticated, which allows such requests for interfaces whose clients can send no
	// key.
	Subject              string `json:"subject,omitempty"`
	AllowUnauthenticated bool   `json:"allow_unauthenticated,omitempty"`
}

// pathForm matches the paths of fronts.
var pathForm = regexp.MustCompile(`^(/[A-Za-z0-9_-]+){1,4}$`)

// CheckFronts returns all errors in the configuration of fronts, each as an *executor.FieldError,
// joined. It does not know whether there are keys, nor who can reach the server: see Config.Check.
func CheckFronts(fronts []Front) error { return checkFronts(fronts, true, true) }

func checkFronts(fronts []Front, keys, local bool) error {
	var errs []error
	for i, f := range fronts {
		wrong := func(format string, args ...any) {
			field, text, _ := strings.Cut(fmt.Sprintf(format, args...), ": ")
			errs = append(errs, &executor.FieldError{Path: fmt.Sprintf("fronts[%d].%s", i, field), Err: errors.New(text)})
		}
		a := named(f.API)
		switch {
		case a == nil:
			wrong("api: %q is unknown; want one of %s", f.API, strings.Join(Names(), ", "))
		case f.AllowUnauthenticated && !a.keyless:
			wrong("allow_unauthenticated: clients of %s send keys, so it needs keys", f.API)
		case f.AllowUnauthenticated != (f.Subject != ""):
			wrong("subject: set it together with allow_unauthenticated, or leave both out")
		case a.keyless && !keys && !local && !f.AllowUnauthenticated:
			wrong("api: clients of %s can send no key, and other machines can reach the server; listen on loopback or a Unix socket, set keys, or set subject and allow_unauthenticated", f.API)
		case !a.keyless && !keys:
			wrong("api: clients of %s send keys, and none is configured", f.API)
		}
		if f.Path != "" && !pathForm.MatchString(f.Path) {
			wrong("path: %q is not a path such as /piston", f.Path)
		}
		for j, g := range fronts[:i] {
			if within(f.Path, g.Path) || within(g.Path, f.Path) {
				wrong("path: %q collides with %q of fronts[%d]; give each a path of its own", f.Path, g.Path, j)
			}
		}
	}
	return errors.Join(errs...)
}

// within reports whether a path is another one or below it.
func within(p, of string) bool { return p == of || strings.HasPrefix(p, of+"/") }

// mount makes the handler of all fronts.
func (s *Server) mount() http.Handler {
	root := http.NewServeMux()
	for _, f := range s.cfg.Fronts {
		a, mux := named(f.API), http.NewServeMux()
		for pattern, rt := range a.routes {
			method, path, _ := strings.Cut(pattern, " ")
			for _, base := range a.bases {
				mux.Handle(method+" "+base+path, s.handler(f, a, rt))
			}
		}
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			s.refuse(w, a, refusal{http.StatusNotFound, fmt.Sprintf("%s %.200q: there is no such operation of %s", r.Method, r.URL.Path, a.name)})
		})
		root.Handle(f.Path+"/", http.StripPrefix(f.Path, mux))
		if f.Path != "" { // a URL without a slash at its end is also the root of the front
			root.Handle(f.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r = r.Clone(r.Context())
				r.URL.Path, r.URL.RawPath = "/", ""
				mux.ServeHTTP(w, r)
			}))
		}
	}
	return root
}

// apiOf returns the interface whose front a request is for, or the first.
func (s *Server) apiOf(r *http.Request) *api {
	for _, f := range s.cfg.Fronts {
		if within(r.URL.Path, f.Path) {
			return named(f.API)
		}
	}
	return named(s.cfg.Fronts[0].API)
}

func (s *Server) handler(f Front, a *api, rt route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Server: s, api: a, w: w, r: r}
		var err error
		if !rt.open {
			c.client, err = s.admit(f, a, r)
		}
		status, v := 0, any(nil)
		switch {
		case err != nil:
		case rt.run != nil:
			status, v, err = c.execute(rt.run)
		default:
			status, v, err = rt.do(c)
		}
		switch {
		case err != nil:
			s.refuse(w, a, c.refusal(err))
		case status != 0:
			front.Answer(w, status, v, `{"message":"internal error"}`)
		}
	})
}

// refuse answers in the form of an interface that a request was not carried out.
func (s *Server) refuse(w http.ResponseWriter, a *api, why refusal) {
	if why.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	front.Answer(w, why.status, a.refuse(why), `{"message":"internal error"}`)
}
