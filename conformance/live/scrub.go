package live

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// scrubber makes a text of an exchange that can be published. What is kept is listed; all else is
// replaced by a word that says what it was. Values that are known to be secret are looked for in
// what is kept, too, and anew in all that is written.
type scrubber struct {
	mu     sync.Mutex
	secret map[string]string // texts, with what they are replaced by
}

// What is kept. Headers by name; strings and numbers of JSON by the key that they are below; words
// of paths and queries.
var (
	keptHeaders = []string{
		"Content-Type", "Retry-After", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Should-Retry", "X-Total-Running",
	}
	keptValues = []string{
		"state", "status", "previous_state", "error", "message", "code", "error_code", "type", "host_status", "cpu_kind", "cpus", "memory_mb",
		"cpuCount", "memoryMB", "diskSizeMB", "envdVersion", "policy", "signal", "exit_code", "exit_signal", "stdout", "stderr", "timeout", "ttl",
		"restart_count", "guest_exit_code", "guest_signal", "limit", "port", "exitCode", "seconds", "mode", "onTimeout",
	}
	keptWords = strings.Fields(`v1 v2 apps machines wait exec metadata lease start stop suspend restart signal events versions ps cordon
		uncordon sandboxes connect timeout refreshes pause resume metrics logs network health files process.Process filesystem.Filesystem List Start
		SendSignal MakeDir Stat ip_assignments network_policies platform regions templates aliases execute contexts`)
	keptQuery   = strings.Fields(`state timeout version limit order force kill ttl nextToken include_deleted summary metadata path username`)
	keptInQuery = strings.Fields(`started stopped suspended destroyed settled created running paused running,paused asc desc true false`)
)

// secretKeys are keys of JSON whose values are remembered, to be looked for elsewhere.
var secretKeys = regexp.MustCompile(`(?i)token|secret|nonce|password|credential|api_?key|organi[sz]ation|\borg_|org_slug|team|e-?mail`)

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z_]{0,39}$`)
	number     = regexp.MustCompile(`^[0-9]{1,6}$`)
	quoted     = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`")
	address    = regexp.MustCompile(`[a-z0-9.+-]+://\S+|\S+@\S+|\b[0-9a-f]*:[0-9a-f:]*:[0-9a-f:]*\b|\b\d+\.\d+\.\d+\.\d+\b`)
	word       = regexp.MustCompile(`[A-Za-z0-9_+/=.-]{12,}`)
	pieces     = regexp.MustCompile(`[\pL\pN]+`)
)

// ordinary is what the name of an app is replaced by. It may be a word of every report.
const ordinary = "APP"

func newScrubber(svc *service, o *Options) *scrubber {
	s := &scrubber{secret: map[string]string{}}
	s.learn("SECRET", svc.key)
	_, bare, _ := strings.Cut(svc.key, " ")
	s.learn("SECRET", bare)
	s.learn(ordinary, svc.texts["app"])
	s.learn("HIDDEN", o.Hide...)
	s.learn("OWNER", o.Owners()...)
	return s
}

// shortest is the length from which on a text is looked for: shorter ones would be found in every
// word.
const shortest = 4

// learn remembers texts that must not be written, in the forms in which they may come.
func (s *scrubber) learn(as string, texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range texts {
		if len(t) < shortest {
			continue
		}
		escaped, err := json.Marshal(t)
		if err != nil {
			continue // no text
		}
		raw := []byte(t)
		for _, form := range []string{
			t, strings.ToLower(t), url.QueryEscape(t), url.PathEscape(t), string(escaped[1 : len(escaped)-1]), hex.EncodeToString(raw),
			base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw),
			base64.RawURLEncoding.EncodeToString(raw),
		} {
			if _, known := s.secret[form]; !known {
				s.secret[form] = as
			}
		}
	}
}

// hide replaces what is known to be secret, but for some kinds.
func (s *scrubber) hide(text string, but ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for t, as := range s.secret {
		if !slices.Contains(but, as) && strings.Contains(text, t) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // what has another one in it comes first
	for _, t := range all {
		text = strings.ReplaceAll(text, t, s.secret[t])
	}
	return text
}

// text keeps the words of a message, and nothing that looks like a name, an address or a key.
func (s *scrubber) text(t string) string {
	const most = 1000
	t = s.hide(strings.ToValidUTF8(t, "\uFFFD"))
	if len(t) > most {
		t = t[:most]
	}
	t = quoted.ReplaceAllString(t, "QUOTED")
	t = address.ReplaceAllString(t, "ADDRESS")
	return word.ReplaceAllStringFunc(t, func(w string) string {
		for _, piece := range pieces.FindAllString(w, -1) {
			if len(piece) >= 12 && (strings.ContainsAny(piece, "0123456789") || piece != strings.ToLower(piece)) {
				return "WORD"
			}
		}
		return w
	})
}

// Forms of a request or an answer.

// path keeps the words of an address that the service's interface is made of.
func (s *scrubber) path(u *url.URL) string {
	words := strings.Split(u.EscapedPath(), "/")
	for i, w := range words {
		if w != "" && !slices.Contains(keptWords, w) {
			words[i] = "ID"
			for _, rpc := range []string{"process.Process", "filesystem.Filesystem"} {
				if strings.HasPrefix(w, rpc) {
					words[i] = rpc
				}
			}
		}
	}
	out := strings.Join(words, "/")
	query, _ := url.ParseQuery(u.RawQuery) // what is none is left out
	var parts []string
	for k, vs := range query {
		for _, v := range vs {
			name, _, _ := strings.Cut(k, ".")
			if !slices.Contains(keptQuery, name) {
				k = "KEY"
			} else if name != k {
				k = name + ".KEY"
			}
			if !number.MatchString(v) && !slices.Contains(keptInQuery, v) {
				v = "VALUE"
			}
			parts = append(parts, k+"="+v)
		}
	}
	if len(parts) > 0 {
		slices.Sort(parts)
		out += "?" + strings.Join(parts, "&")
	}
	return out
}

// header keeps the headers that mean something to a client.
func (s *scrubber) header(h http.Header) string {
	var b strings.Builder
	for _, name := range keptHeaders {
		for _, v := range h.Values(name) {
			fmt.Fprintf(&b, "%s: %s\n", name, s.text(v))
		}
	}
	return b.String()
}

// body keeps the form of a body: of JSON, lines of JSON and the frames of Connect.
func (s *scrubber) body(data []byte) string {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return ""
	}
	if v, ok := parse(data); ok {
		return s.indented(v)
	}
	if frames, ok := envelopes(data); ok {
		return s.several("frame", frames)
	}
	if lines := bytes.Split(data, []byte("\n")); len(lines) > 1 && slices.ContainsFunc(lines, func(l []byte) bool { _, ok := parse(l); return ok }) {
		return s.several("line", lines)
	}
	return s.text(string(data)) + "\n"
}

func (s *scrubber) several(what string, parts [][]byte) string {
	const most = 50
	var b strings.Builder
	for i, p := range parts[:min(len(parts), most)] {
		v, ok := parse(p)
		if !ok {
			fmt.Fprintf(&b, "%s %d: %d bytes\n", what, i, len(p))
			continue
		}
		fmt.Fprintf(&b, "%s %d: %s", what, i, s.indented(v))
	}
	return b.String()
}

func (s *scrubber) indented(v any) string {
	s.remember(v, false)
	text, err := json.MarshalIndent(s.value(v, ""), "", "  ")
	if err != nil {
		return "no JSON\n"
	}
	return string(text) + "\n"
}

func parse(data []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return v, d.Decode(&v) == nil && !d.More()
}

// envelopes returns the frames of a stream of Connect.
func envelopes(data []byte) (frames [][]byte, ok bool) {
	const head = 5
	for len(data) > 0 {
		if len(data) < head || data[0]&^3 != 0 {
			return nil, false
		}
		n := binary.BigEndian.Uint32(data[1:head])
		if uint64(n) > uint64(len(data)-head) {
			return nil, false
		}
		frames = append(frames, data[head:head+int(n)])
		data = data[head+int(n):]
	}
	return frames, true
}

// remember learns the values of keys that name secrets, so that they are found in messages too.
func (s *scrubber) remember(v any, secret bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			s.remember(e, secret || secretKeys.MatchString(k))
		}
	case []any:
		for _, e := range v {
			s.remember(e, secret)
		}
	case string:
		if secret {
			s.learn("SECRET", v)
		}
	}
}

// value keeps the keys of a value, and of the values those that are listed.
func (s *scrubber) value(v any, below string) any {
	kept := slices.Contains(keptValues, below)
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			name := s.hide(k)
			if name != k || !identifier.MatchString(k) {
				name = "KEY"
			}
			out[name] = s.value(e, k)
		}
		return out
	case []any:
		const most = 5
		out := []any{}
		for _, e := range v[:min(len(v), most)] {
			out = append(out, s.value(e, below))
		}
		return out
	case string:
		if kept {
			return s.text(v)
		}
		return "STRING"
	case json.Number:
		if kept && number.MatchString(v.String()) {
			return v
		}
		return 0
	}
	return v
}
