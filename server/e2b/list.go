package e2b

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxPage is the most sandboxes that one answer lists.
const maxPage = 100

// filter is what a client wants to see of its sandboxes.
type filter struct {
	metadata map[string]string
	states   []string
	template string
	after    time.Time
	newest   bool // first
	limit    int
	from     string // sandboxes up to here were listed before
}

// list answers both generations of its path: the older one neither pages nor sorts differently.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	o, err := s.authenticate(r)
	if err != nil {
		writeError(w, err)
		return
	}
	f, err := parseFilter(r.URL.Query(), r.URL.Path != "/sandboxes")
	if err != nil {
		writeError(w, err)
		return
	}
	all := s.owned(o)
	running := 0
	for _, b := range all {
		if !b.isPaused() {
			running++
		}
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	if f.newest {
		slices.Reverse(all)
	}
	page := []sandboxDetail{}
	for _, b := range all {
		if !f.matches(b) {
			continue
		}
		if f.limit > 0 && len(page) == f.limit {
			last := page[len(page)-1]
			w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(position(last.StartedAt, last.SandboxID))))
			break
		}
		page = append(page, s.detail(b))
	}
	writeJSON(w, http.StatusOK, page)
}

// position orders sandboxes as owned does. Pages begin after one, so that a sandbox that ends
// between two pages moves none of the others.
func position(started time.Time, id string) string {
	return started.UTC().Format("20060102T150405.000000000") + " " + id
}

func (f filter) matches(b *sandbox) bool {
	at := position(b.started, b.id)
	if !slices.Contains(f.states, b.state()) || f.template != "" && f.template != b.template || !f.after.IsZero() && !b.started.After(f.after) {
		return false
	}
	if f.from != "" && (f.newest && at >= f.from || !f.newest && at <= f.from) {
		return false
	}
	for k, v := range f.metadata {
		if got, ok := b.metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func parseFilter(q url.Values, paged bool) (f filter, err error) {
	bad := func(name, want string) (filter, error) {
		return f, refuse(http.StatusBadRequest, "%s: want %s", name, want)
	}
	if f.metadata, err = parseMetadata(q.Get("metadata")); err != nil {
		return bad("metadata", "a query string")
	}
	f.newest = true
	if !paged {
		f.states = []string{stateRunning}
		return f, nil
	}
	f.states = []string{stateRunning, statePaused}
	if states := strings.Join(q["state"], ","); states != "" {
		f.states = strings.Split(states, ",")
		for _, state := range f.states {
			if state != stateRunning && state != statePaused {
				return bad("state", "running or paused")
			}
		}
	}
	f.template = q.Get("template")
	if t := q.Get("startedAfter"); t != "" {
		if f.after, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return bad("startedAfter", "a time as in RFC 3339")
		}
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		f.newest = false
	default:
		return bad("order", "asc or desc")
	}
	f.limit = maxPage
	if l := q.Get("limit"); l != "" {
		if f.limit, err = strconv.Atoi(l); err != nil || f.limit < 1 || f.limit > maxPage {
			return bad("limit", "1 to 100")
		}
	}
	from, err := base64.RawURLEncoding.DecodeString(q.Get("nextToken"))
	if err != nil {
		return bad("nextToken", "one that a list gave")
	}
	f.from = string(from)
	return f, nil
}

// parseMetadata decodes a query string within a query string, whose keys and values clients encode
// once more before.
func parseMetadata(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for k, v := range values {
		key, err := url.QueryUnescape(k)
		if err != nil {
			return nil, err
		}
		if m[key], err = url.QueryUnescape(v[0]); err != nil {
			return nil, err
		}
	}
	return m, nil
}
