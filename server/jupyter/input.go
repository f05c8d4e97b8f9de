package jupyter

import (
	"context"
	_ "embed" // for input.py
	"encoding/json"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/complete"
	"github.com/execbroker/execbroker/internal/stdin"
)

// mimeInput is the media type by which input.py asks for input. Code that forges it asks the same
// user for the same.
const mimeInput = "text/vnd.execbroker.input"

// inputPython replaces input and getpass by functions that ask the client, because backends do not
// tell when code waits for its standard input.
//
//go:embed input.py
var inputPython string

// asking is a question for input that waits for its answer.
type asking struct {
	conn  *conn
	input *stdin.Input
}

// canAsk reports whether code can ask for input, and prepares the interpreter for that.
func (k *kernel) canAsk(ctx context.Context, l *sessions.Lease) bool {
	caps, language := l.Info().Capabilities, k.about.language
	if language != executor.Python || !caps.HasFor(language, executor.FeatureStdin) || !caps.HasFor(language, executor.FeatureState) || !caps.HasFor(language, executor.FeatureRichOutput) {
		return false
	}
	if !k.ready {
		_, err := k.hidden(ctx, l, complete.Python(inputPython, map[string]string{"mime": mimeInput}))
		k.ready = err == nil
	}
	return k.ready
}

// hidden runs code that is no cell of the user, and returns what it displays with the media type of
// package complete.
func (k *kernel) hidden(ctx context.Context, l *sessions.Lease, code string) (answer []byte, err error) {
	run := l.Run
	if keeper := sessions.Keeper(nil); executor.As(l, &keeper) {
		run = keeper.KeeperRun // it is no turn
	}
	res, err := run(ctx, executor.Request{Language: k.about.language, Code: code, Keep: -1, Limits: executor.RunLimits{WallTime: min(hiddenTime, k.s.cfg.MaxTimeout)}}, func(e executor.Event) error {
		if e.Kind == executor.EventOutput && answer == nil {
			answer = e.Output.Data[complete.MIME]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if res.StateLost || res.StateFresh {
		k.ready = false
	}
	return answer, res.Err()
}

// ask asks the client of a cell for input.
func (k *kernel) ask(t *task, in *stdin.Input, question []byte) {
	if in == nil {
		return // the code finds the end of its input
	}
	q := struct {
		Prompt   string `json:"prompt"`
		Password bool   `json:"password"`
	}{}
	_ = json.Unmarshal(question, &q) // a forged question has no prompt
	k.mu.Lock()
	there := k.conns[t.conn]
	k.asking = &asking{t.conn, in}
	k.mu.Unlock()
	if !there {
		in.Close()
		return
	}
	t.conn.reply(stdio, "input_request", t.q.raw, q)
}

// asked forgets a question whose cell has ended.
func (k *kernel) asked() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asking = nil
}

// give gives the code the input that it has asked for, as one line.
func (k *kernel) give(ctx context.Context, c *conn, q request) {
	var a struct {
		Value string `json:"value"`
	}
	k.mu.Lock()
	waits := k.asking
	if waits != nil && waits.conn == c {
		k.asking = nil
	}
	k.mu.Unlock()
	if waits == nil || waits.conn != c || json.Unmarshal(q.content, &a) != nil {
		return // nobody has asked this client
	}
	line := strings.NewReplacer("\r", " ", "\n", " ").Replace(a.Value) + "\n"
	_ = waits.input.Send(ctx, []byte(line)) // a run that has ended reads none
}
