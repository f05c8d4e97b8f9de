package compat

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/execbroker/execbroker/internal/front"
	"github.com/execbroker/execbroker/server"
)

// local is the subject of requests without a key from this machine.
const local = "local"

// published are keys that services of these interfaces have in their documentation or as their
// defaults, so that everybody knows them.
var published = []string{
	"dify-sandbox", "default-api-key", "test-api-key-for-development-only",
	"test-api-key-for-development-only-change-in-production", "your-secure-api-key-here",
	"your-secure-api-key-here-change-this-in-production", "your_librechat_code_api_key", "your-librechat-code-api-key",
}

func checkKeys(keys server.Keys) error {
	for _, k := range published {
		if _, ok := keys.Lookup(k); ok {
			return fmt.Errorf("keys: %q is published, so everybody knows it; make another one", k)
		}
	}
	return nil
}

// keyHeaders are where clients of these services send their key, besides Authorization.
var keyHeaders = []string{"X-API-Key", "X-Auth-Token"}

// keyOf returns the key of a request. Some clients send it in Authorization without "Bearer", or
// with "bearer".
func keyOf(r *http.Request) string {
	if h := r.Header.Get("Authorization"); h != "" {
		if scheme, key, ok := strings.Cut(h, " "); ok && strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(key)
		}
		return h
	}
	for _, name := range keyHeaders {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}
	return ""
}

var errNoKey = errors.New("a key is required, as a bearer token or in " + strings.Join(keyHeaders, " or "))

// admit returns whom a request is from.
func (s *Server) admit(f Front, a *api, r *http.Request) (server.Client, error) {
	if upgrades(r) && front.CrossOrigin(r) {
		return server.Client{}, refusal{http.StatusForbidden, "the request is from a web page of another origin"}
	}
	key := keyOf(r)
	if c, ok := s.cfg.Keys.Lookup(key); ok {
		front.Admit(r.Context())
		return c, nil
	}
	switch {
	case !a.keyless || key != "" && s.cfg.Keys.Len() > 0:
	case f.AllowUnauthenticated:
		return server.Client{Subject: f.Subject}, nil
	case s.cfg.Local && s.cfg.Keys.Len() == 0:
		return server.Client{Subject: local}, nil
	}
	return server.Client{}, refusal{http.StatusUnauthorized, errNoKey.Error()}
}

func upgrades(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }
