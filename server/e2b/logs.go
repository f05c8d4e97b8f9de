package e2b

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxLogs is how many entries are kept of a sandbox: the last ones.
const maxLogs = 1000

// logEntry is a line of the log of a sandbox, in both forms that clients ask for.
type logEntry struct {
	Timestamp time.Time         `json:"timestamp"`
	Line      string            `json:"line,omitempty"` // the older form: an object as text
	Level     string            `json:"level,omitempty"`
	Message   string            `json:"message,omitempty"`
	Fields    map[string]string `json:"fields,omitempty"`
}

// note adds a line to the log of b, which says what the server has done with it.
func (b *sandbox) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.logs) == maxLogs {
		b.logs = slices.Delete(b.logs, 0, 1)
	}
	b.logs = append(b.logs, logEntry{Timestamp: time.Now().UTC(), Level: "info", Message: what, Fields: map[string]string{}})
}

// logs returns the log of a sandbox. Output of code is not in it: whoever runs the code gets that.
func (*Server) logs(r *http.Request, b *sandbox) (int, any, error) {
	q := r.URL.Query()
	bad := func(name, want string) (int, any, error) {
		return 0, nil, refuse(http.StatusBadRequest, "%s: want %s", name, want)
	}
	number := func(name string, n, most int64) (int64, bool) {
		if q.Get(name) == "" {
			return n, true
		}
		n, err := strconv.ParseInt(q.Get(name), 10, 64)
		return n, err == nil && n >= 0 && n <= most
	}
	limit, ok := number("limit", maxLogs, maxLogs)
	if !ok {
		return bad("limit", "0 to 1000")
	}
	b.mu.Lock()
	all := slices.Clone(b.logs)
	b.mu.Unlock()
	if !strings.HasPrefix(r.URL.Path, "/v2/") {
		start, ok := number("start", 0, 1<<62)
		if !ok {
			return bad("start", "milliseconds")
		}
		all = slices.DeleteFunc(all, func(l logEntry) bool { return l.Timestamp.UnixMilli() < start })
		all = all[:min(len(all), int(limit))]
		return http.StatusOK, map[string]any{"logs": older(all), "logEntries": all}, nil
	}
	backward := q.Get("direction") == "backward"
	if d := q.Get("direction"); d != "" && d != "forward" && !backward {
		return bad("direction", "forward or backward")
	}
	cursor, ok := number("cursor", 0, 1<<62)
	if !ok {
		return bad("cursor", "milliseconds")
	}
	all = slices.DeleteFunc(all, func(l logEntry) bool {
		at := l.Timestamp.UnixMilli()
		return q.Get("cursor") != "" && (backward && at > cursor || !backward && at < cursor) || !strings.Contains(l.Message, q.Get("search")) ||
			!slices.Contains([]string{"", "debug", "info"}, q.Get("level"))
	})
	if backward {
		slices.Reverse(all)
	}
	return http.StatusOK, map[string]any{"logs": all[:min(len(all), int(limit))]}, nil
}

// older returns entries in the older form, which E2B's command line reads.
func older(all []logEntry) []logEntry {
	entries := make([]logEntry, len(all))
	for i, l := range all {
		line := jsonLine(map[string]string{"level": l.Level, "logger": "execbroker", "message": l.Message})
		entries[i] = logEntry{Timestamp: l.Timestamp, Line: strings.TrimSpace(string(line))}
	}
	return entries
}
