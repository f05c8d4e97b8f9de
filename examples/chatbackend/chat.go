package main

import (
	"context"
	_ "embed" // for the page
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/tool"
)

//go:embed page.html
var page []byte

// The limits of a conversation.
const (
	maxRounds        = 8 // of model and tool, for one message of the user
	maxAttempts      = 3 // of code that fails
	maxHistory       = 200
	maxConversations = 1000
	maxFile          = 8 << 20
)

const system = `You are a helpful assistant with a sandbox. Compute with code instead of guessing. Files of the user are in the working directory.`

// chat is the server. Conversations are in memory. Their sandboxes survive a restart if the
// configuration and the backend support that.
type chat struct {
	t   *tool.Tool
	m   model
	mux *http.ServeMux

	mu    sync.Mutex
	talks map[string]*talk
}

// talk is a conversation. Its messages are handled one after the other.
type talk struct {
	mu      sync.Mutex
	history []message
	used    time.Time // guarded by chat.mu
}

// event is sent to the page, one in each line.
type event struct {
	Kind   string       `json:"kind"`             // "text", "code", "output", "result", "error", "done"
	Text   string       `json:"text,omitempty"`   // for text, code, output and error
	Try    int          `json:"try,omitempty"`    // for code: 1, or more if it was corrected
	Result *tool.Output `json:"result,omitempty"` // for result
}

func newChat(t *tool.Tool, m model) *chat {
	c := &chat{t: t, m: m, mux: http.NewServeMux(), talks: map[string]*talk{}}
	c.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// Charts are images, which run no scripts, even if the code has put some into them.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'")
		_, _ = w.Write(page)
	})
	c.mux.HandleFunc("POST /chat/{id}", c.say)
	c.mux.HandleFunc("PUT /chat/{id}/files/{name...}", c.upload)
	c.mux.HandleFunc("GET /chat/{id}/files/{name...}", c.download)
	return c
}

// ServeHTTP implements http.Handler. It refuses requests of other web sites: everybody who can load
// the page can use the sandbox.
func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.NewCrossOriginProtection().Handler(c.mux).ServeHTTP(w, r)
}

// conversationID requires IDs that are long enough that nobody can guess one. A server with users
// must check the owner.
var conversationID = regexp.MustCompile(`^[a-z0-9-]{16,64}$`)

// conversation returns the talk of a request. If there is none, it answers the request.
func (c *chat) conversation(w http.ResponseWriter, r *http.Request) (*talk, tool.Conversation, bool) {
	id := r.PathValue("id")
	if !conversationID.MatchString(id) {
		http.Error(w, "no such conversation", http.StatusNotFound)
		return nil, tool.Conversation{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.talks[id]
	if t == nil {
		if len(c.talks) >= maxConversations { // forget the one that was unused for the longest time
			oldest := ""
			for id, t := range c.talks {
				if oldest == "" || t.used.Before(c.talks[oldest].used) {
					oldest = id
				}
			}
			delete(c.talks, oldest)
		}
		t = &talk{history: []message{{Role: "system", Content: system}}}
		c.talks[id] = t
	}
	t.used = time.Now()
	return t, tool.Conversation{ID: id}, true
}

func (c *chat) say(w http.ResponseWriter, r *http.Request) {
	t, who, ok := c.conversation(w, r)
	if !ok {
		return
	}
	var in struct{ Text string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&in); err != nil || strings.TrimSpace(in.Text) == "" {
		http.Error(w, "want a text", http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.history) >= maxHistory {
		http.Error(w, "the conversation is too long; begin another one", http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	out := &stream{w: w, enc: json.NewEncoder(w)}
	before := len(t.history)
	t.history = append(t.history, message{Role: "user", Content: in.Text})
	if err := c.answer(r.Context(), t, who, out); err != nil {
		log.Printf("conversation: %v", err)
		t.history = t.history[:before] // half an answer would confuse the model
		out.send(event{Kind: "error", Text: "The answer could not be finished. Try again."})
	}
	out.send(event{Kind: "done"})
}

// answer calls the model and the tool alternately until the model has nothing more to run.
func (c *chat) answer(ctx context.Context, t *talk, who tool.Conversation, out *stream) error {
	next, err := c.reply(ctx, t, out)
	for range maxRounds {
		if err != nil || len(next.Calls) == 0 {
			return err
		}
		if next, err = c.call(ctx, t, who, next, out); err != nil {
			return err
		}
	}
	if len(next.Calls) > 0 {
		return errors.New("the model does not come to an end")
	}
	return nil
}

// reply sends the whole conversation to the model, and adds its answer.
func (c *chat) reply(ctx context.Context, t *talk, out *stream) (message, error) {
	m, err := c.m.reply(ctx, t.history, c.t.Definition().OpenAI(), func(s string) { out.send(event{Kind: "text", Text: s}) })
	if err == nil {
		t.history = append(t.history, m)
	}
	return m, err
}

// call runs the calls of the model. Failed code goes back to the model, which may correct it a few
// times. Every attempt is a run in the same sandbox, and the model gets the error in text that is
// made for models. call returns the last message of the model.
func (c *chat) call(ctx context.Context, t *talk, who tool.Conversation, m message, out *stream) (message, error) {
	for i, call := range m.Calls {
		if i < len(m.Calls)-1 || len(m.Calls) > 1 { // several calls at once are run without corrections
			o, err := c.run(ctx, who, call.Function.Arguments, 1, out)
			if err != nil {
				return message{}, err
			}
			t.history = append(t.history, toolAnswer(call, o))
		}
	}
	if len(m.Calls) > 1 {
		return c.reply(ctx, t, out)
	}
	var last message
	tries := 0
	emit := out.output
	out.code(c.t, m.Calls[0].Function.Arguments, 1)
	tried, err := c.t.Repair(ctx, who, m.Calls[0].Function.Arguments, maxAttempts, func(ctx context.Context, tried []tool.Attempt) (string, error) {
		tries = len(tried)
		failed := tried[len(tried)-1].Output
		out.result(failed)
		t.history = append(t.history, toolAnswer(m.Calls[0], failed))
		var err error
		if last, err = c.reply(ctx, t, out); err != nil || len(last.Calls) != 1 {
			return "", err // the model has given up, or wants something else
		}
		m = last
		out.code(c.t, m.Calls[0].Function.Arguments, tries+1)
		return m.Calls[0].Function.Arguments, nil
	}, emit)
	if err != nil {
		return message{}, err
	}
	if len(tried) == tries { // the last message is the model's
		return last, nil
	}
	done := tried[len(tried)-1].Output
	out.result(done)
	t.history = append(t.history, toolAnswer(m.Calls[0], done))
	return c.reply(ctx, t, out)
}

func (c *chat) run(ctx context.Context, who tool.Conversation, arguments string, try int, out *stream) (tool.Output, error) {
	out.code(c.t, arguments, try)
	o, err := c.t.Call(ctx, who, arguments, out.output)
	out.result(o)
	return o, err
}

// toolAnswer returns the result of a run for the model. It contains only text, because images and
// files are shown to the user.
func toolAnswer(call toolCall, o tool.Output) message {
	text, _ := o.ForModel().OpenAI()
	if len(o.Images) > 0 {
		text += "\n[The user sees the images.]"
	}
	return message{Role: "tool", CallID: call.ID, Content: text}
}

func (c *chat) upload(w http.ResponseWriter, r *http.Request) {
	_, who, ok := c.conversation(w, r)
	if !ok {
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFile))
	if err != nil {
		http.Error(w, fmt.Sprintf("files may have %d bytes", maxFile), http.StatusRequestEntityTooLarge)
		return
	}
	if err := c.t.WriteFile(r.Context(), who, "", tool.InputFile{Name: r.PathValue("name"), Content: data}); err != nil {
		fileError(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (c *chat) download(w http.ResponseWriter, r *http.Request) {
	_, who, ok := c.conversation(w, r)
	if !ok {
		return
	}
	name := r.PathValue("name")
	data, err := c.t.ReadFile(r.Context(), who, "", name, maxFile)
	if err != nil {
		fileError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name[strings.LastIndexByte(name, '/')+1:]}))
	_, _ = w.Write(data)
}

func fileError(w http.ResponseWriter, err error) {
	if bad := (*tool.InputError)(nil); errors.As(err, &bad) {
		http.Error(w, bad.Error(), http.StatusBadRequest)
		return
	}
	log.Printf("files: %v", err)
	http.Error(w, tool.Explain(err), http.StatusServiceUnavailable)
}

// stream writes events to the page.
type stream struct {
	w   http.ResponseWriter
	enc *json.Encoder
}

func (s *stream) send(e event) {
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(30 * time.Second)) // the ResponseWriter of a test has no deadline
	if s.enc.Encode(e) == nil {
		_ = http.NewResponseController(s.w).Flush() // the context of the request ends if the client disconnects
	}
}

// code shows the code that is about to run.
func (s *stream) code(t *tool.Tool, arguments string, try int) {
	text := arguments
	if in, err := tool.ParseInput(arguments, t.Options().Languages[0]); err == nil {
		text = in.Code
	}
	s.send(event{Kind: "code", Text: text, Try: try})
}

func (s *stream) output(e executor.Event) error {
	if e.Kind == executor.EventStdout || e.Kind == executor.EventStderr {
		s.send(event{Kind: "output", Text: e.Data.String()})
	}
	return nil
}

func (s *stream) result(o tool.Output) { s.send(event{Kind: "result", Result: &o}) }
