package main

import (
	"context"
	"embed"
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
	"github.com/execbroker/execbroker/server/page"
	"github.com/execbroker/execbroker/tool"
)

// own is what the page has besides the parts of the page of the server.
//
//go:embed page
var own embed.FS

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

// event is sent to the page as a server-sent event with the name Kind.
type event struct {
	Kind    string           `json:"-"`                 // "text", "code", "stdout", "stderr", "value", "result", "error", "done"
	Text    string           `json:"text,omitempty"`    // for text and code
	Try     int              `json:"try,omitempty"`     // for code: 1, or more if it was corrected
	Data    executor.Bytes   `json:"data,omitempty"`    // for stdout and stderr
	Output  *executor.Output `json:"output,omitempty"`  // for value
	Error   string           `json:"error,omitempty"`   // for result: why the code failed
	Files   []string         `json:"files,omitempty"`   // for result: which the code created or changed
	Message string           `json:"message,omitempty"` // for error: why there is no answer
}

func newChat(t *tool.Tool, m model) *chat {
	c := &chat{t: t, m: m, mux: http.NewServeMux(), talks: map[string]*talk{}}
	c.mux.Handle("GET /", page.Of(own, "page"))
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
		refuse(w, http.StatusNotFound, "no such conversation")
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
	body, arrived := bounded(w, r, 64<<10)
	if err := json.NewDecoder(body).Decode(&in); err != nil || strings.TrimSpace(in.Text) == "" {
		refuse(w, http.StatusBadRequest, "want a text")
		return
	}
	arrived()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.history) >= maxHistory {
		refuse(w, http.StatusConflict, "the conversation is too long; begin another one")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := &stream{w}
	before := len(t.history)
	t.history = append(t.history, message{Role: "user", Content: in.Text})
	if err := c.answer(r.Context(), t, who, out); err != nil {
		if r.Context().Err() == nil { // the user has not pressed Stop
			log.Printf("conversation: %v", err)
		}
		t.history = t.history[:before] // half an answer would confuse the model
		out.send(event{Kind: "error", Message: "The answer could not be finished. Try again."})
		return
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

// bounded returns the body of a request with limits on its length and on the time in which it
// arrives. The caller calls arrived when it has read the body without an error: the server waits
// for the rest of another body.
func bounded(w http.ResponseWriter, r *http.Request, most int64) (body io.Reader, arrived func()) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(time.Minute)) // the ResponseWriter of a test has no deadline
	return http.MaxBytesReader(w, r.Body, most), func() { _ = rc.SetReadDeadline(time.Time{}) }
}

func (c *chat) upload(w http.ResponseWriter, r *http.Request) {
	_, who, ok := c.conversation(w, r)
	if !ok {
		return
	}
	body, arrived := bounded(w, r, maxFile)
	data, err := io.ReadAll(body)
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("files may have %d bytes", maxFile))
		return
	}
	arrived()
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
		refuse(w, http.StatusBadRequest, bad.Error())
		return
	}
	log.Printf("files: %v", err)
	refuse(w, http.StatusServiceUnavailable, tool.Explain(err))
}

// refuse answers a request with the reason, in the form that the page reads.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(event{Message: text}) // the client may have left
}

// stream writes events to the page.
type stream struct{ w http.ResponseWriter }

func (s *stream) send(e event) {
	data, err := json.Marshal(e)
	if err != nil {
		log.Printf("event %s: %v", e.Kind, err)
		return
	}
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(30 * time.Second)) // the ResponseWriter of a test has no deadline
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", e.Kind, data); err == nil {
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

// output shows what the code prints, displays and returns.
func (s *stream) output(e executor.Event) error {
	switch e.Kind {
	case executor.EventStdout, executor.EventStderr:
		s.send(event{Kind: string(e.Kind), Data: e.Data})
	case executor.EventOutput:
		s.send(event{Kind: "value", Output: e.Output})
	default:
	}
	return nil
}

// result shows how the code ended. Its output has been shown.
func (s *stream) result(o tool.Output) {
	e := event{Kind: "result", Error: o.Error}
	for _, f := range o.Files {
		e.Files = append(e.Files, f.Name)
	}
	s.send(e)
}
