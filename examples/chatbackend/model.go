package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/execbroker/execbroker/tool"
)

// message is a message of a conversation in the format of chat completions.
type message struct {
	Role    string     `json:"role"` // "system", "user", "assistant", "tool"
	Content string     `json:"content"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
	CallID  string     `json:"tool_call_id,omitempty"` // ID of the call that a "tool" message answers
}

// toolCall is a call by the model. Arguments are unchanged, as the model wrote them.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// model continues a conversation. It passes text on as it arrives.
type model interface {
	reply(ctx context.Context, history []message, t tool.OpenAITool, text func(string)) (message, error)
}

// openAI is a model behind an API that is compatible with OpenAI's chat completions.
type openAI struct{ url, name, key string }

// The limits of an answer of a model.
const (
	maxAnswer = 4 << 20
	maxCalls  = 16
)

var client = &http.Client{Timeout: 5 * time.Minute}

func (m *openAI) reply(ctx context.Context, history []message, t tool.OpenAITool, text func(string)) (out message, err error) {
	body, err := json.Marshal(map[string]any{"model": m.name, "messages": history, "tools": []any{t}, "stream": true})
	if err != nil {
		return out, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(m.url, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return out, err
	}
	r.Header.Set("Content-Type", "application/json")
	if m.key != "" {
		r.Header.Set("Authorization", "Bearer "+m.key)
	}
	res, err := client.Do(r)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return out, fmt.Errorf("model: %s: %s", res.Status, bytes.TrimSpace(said))
	}
	out.Role = "assistant"
	done := false
	lines := bufio.NewScanner(io.LimitReader(res.Body, maxAnswer))
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() && !done {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		if data = strings.TrimSpace(data); data == "[DONE]" {
			done = true
			continue
		}
		var part struct {
			Choices []struct {
				Delta struct {
					Content string
					Calls   []struct {
						Index int
						toolCall
					} `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &part); err != nil {
			return out, fmt.Errorf("model: an answer that cannot be read: %w", err)
		}
		for _, c := range part.Choices {
			if c.Delta.Content != "" {
				out.Content += c.Delta.Content
				text(c.Delta.Content)
			}
			for _, piece := range c.Delta.Calls {
				if piece.Index < 0 || piece.Index >= maxCalls {
					return out, fmt.Errorf("model: more than %d calls at once", maxCalls)
				}
				for len(out.Calls) <= piece.Index {
					out.Calls = append(out.Calls, toolCall{Type: "function"})
				}
				call := &out.Calls[piece.Index]
				call.ID += piece.ID
				call.Function.Name += piece.Function.Name
				call.Function.Arguments += piece.Function.Arguments
			}
			done = done || c.Finish != ""
		}
	}
	if err := lines.Err(); err != nil {
		return out, fmt.Errorf("model: %w", err)
	}
	if !done {
		return out, fmt.Errorf("model: the answer ended in the middle")
	}
	return out, nil
}
