package jupyter

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
)

// The bounds of what is remembered of the cells of a kernel.
const (
	maxPast      = 1000
	maxPastBytes = 1 << 20
	maxPattern   = 1000 // bytes of a pattern that a client searches for
)

// past are the last cells of a kernel.
type past struct {
	cells []pastCell
	bytes int
}

type pastCell struct {
	number int
	code   string
}

func (p *past) add(number int, code string) {
	if len(code) > maxPastBytes {
		return
	}
	p.cells = append(p.cells, pastCell{number, code})
	p.bytes += len(code)
	for len(p.cells) > maxPast || p.bytes > maxPastBytes {
		p.bytes -= len(p.cells[0].code)
		p.cells = p.cells[1:]
	}
}

// history answers which cells the kernel had. All of them are of one session of it, the first.
func (k *kernel) history(_ context.Context, t *task) any {
	var q struct {
		Output  bool   `json:"output"`
		Type    string `json:"hist_access_type"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
		N       *int   `json:"n"`
		Pattern string `json:"pattern"`
		Unique  bool   `json:"unique"`
	}
	if err := json.Unmarshal(t.q.content, &q); err != nil || len(q.Pattern) > maxPattern {
		return failed("ValueError", "the content is not that of a history_request, or its pattern is too long")
	}
	pattern := regexp.MustCompile(`(?s)^` + strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(q.Pattern)) + `$`)
	found, seen := [][]any{}, map[string]bool{}
	for _, c := range k.past.cells {
		switch {
		case q.Type == "range" && (c.number < q.Start || q.Stop > 0 && c.number >= q.Stop):
		case q.Type == "search" && (!pattern.MatchString(c.code) || q.Unique && seen[c.code]):
		case q.Output:
			found = append(found, []any{1, c.number, []any{c.code, nil}})
		default:
			found = append(found, []any{1, c.number, c.code})
		}
		seen[c.code] = true
	}
	if q.Type != "range" && q.N != nil {
		found = found[len(found)-min(max(*q.N, 0), len(found)):]
	}
	return map[string]any{"status": "ok", "history": found}
}
