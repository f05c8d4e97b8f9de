package jupyter

import (
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/complete"
)

// typed is the content of requests about code that is being typed.
type typed struct {
	Code   string `json:"code"`
	Cursor int    `json:"cursor_pos"` // in characters
	Detail int    `json:"detail_level"`
}

// cursor returns the content of a request, and the cursor in bytes.
func cursor(raw json.RawMessage) (q typed, at int) {
	if json.Unmarshal(raw, &q) != nil {
		return typed{}, 0
	}
	for n := 0; n < q.Cursor && at < len(q.Code); n++ {
		_, size := utf8.DecodeRuneInString(q.Code[at:])
		at += size
	}
	return q, at
}

// completion answers which names continue the code at the cursor. If the interpreter cannot say, it
// knows none.
func (k *kernel) completion(ctx context.Context, t *task) any {
	q, at := cursor(t.q.content)
	names, start := []string{}, at
	if question, ok := complete.Names(k.about.language, q.Code, at); ok {
		if found := complete.Found(k.question(ctx, question)); len(found) > 0 {
			names, start = found, question.Start
		}
	}
	return map[string]any{
		"status": "ok", "matches": names, "metadata": struct{}{},
		"cursor_start": utf8.RuneCountInString(q.Code[:start]), "cursor_end": utf8.RuneCountInString(q.Code[:at]),
	}
}

// inspection answers what the name at the cursor is.
func (k *kernel) inspection(ctx context.Context, t *task) any {
	q, at := cursor(t.q.content)
	data := map[string]string{}
	if question, ok := complete.Explain(k.about.language, q.Code, at, q.Detail > 0); ok {
		if text := complete.Explained(k.question(ctx, question)); text != "" {
			data["text/plain"] = text
		}
	}
	return map[string]any{"status": "ok", "found": len(data) > 0, "data": data, "metadata": struct{}{}}
}

// question returns what the interpreter answers, or nothing.
func (k *kernel) question(ctx context.Context, q complete.Question) (answer []byte) {
	err := k.with(ctx, func(l *sessions.Lease) (err error) {
		caps := l.Info().Capabilities
		if caps.HasFor(k.about.language, executor.FeatureRichOutput) && caps.HasFor(k.about.language, executor.FeatureState) {
			answer, err = k.hidden(ctx, l, q.Code)
		}
		return err
	})
	if err != nil {
		k.s.cfg.Log.DebugContext(ctx, "a question about a name", "kernel", k.id, "err", err)
	}
	return answer
}
