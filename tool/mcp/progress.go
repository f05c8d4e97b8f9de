package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor"
)

const (
	// maxProgress is how much of the latest output a notification contains, and how much is kept
	// for the next one.
	maxProgress = 1 << 10
	// betweenProgress is the shortest time between two notifications. Otherwise a loop that prints
	// would send too many.
	betweenProgress = 100 * time.Millisecond
	// silence is the longest time without a notification. Many clients give up a call after a
	// minute without progress.
	silence = 10 * time.Second
)

// progress tells a client about the progress of its call, if the client has asked for that. Output
// of the code waits in a bounded buffer, so that a client that does not read never blocks the code.
type progress struct {
	log    func(text string) // to the client
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{}

	mu   sync.Mutex
	text string
}

func newProgress(ctx context.Context, req *sdk.CallToolRequest) *progress {
	p := &progress{log: func(text string) { tell(ctx, "info", text) }, wake: make(chan struct{}, 1)}
	token := req.Params.GetProgressToken()
	if token == nil {
		return p
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.work.Go(func() { p.report(ctx, req.Session, token) })
	return p
}

// end waits until the last notification is sent: none may come after the answer.
func (p *progress) end() {
	if p.cancel != nil {
		p.cancel()
		p.work.Wait()
	}
}

func (p *progress) report(ctx context.Context, session *sdk.ServerSession, token any) {
	started := time.Now()
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select { // the pause after the previous notification
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		text := ""
		select {
		case <-p.wake:
			text = p.take()
		case <-quiet.C:
			text = fmt.Sprintf("running for %d s", int(time.Since(started).Seconds()))
		case <-ctx.Done():
			return
		}
		err := session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: time.Since(started).Seconds(), Message: text})
		if err != nil {
			return // the connection is gone; the session finds out by itself
		}
		quiet.Reset(silence)
		pause.Reset(betweenProgress)
	}
}

func (p *progress) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.text
	p.text = ""
	return text
}

// put adds text to the next notification. If there is too much, its end is kept.
func (p *progress) put(text string) {
	if p.cancel == nil || text == "" {
		return
	}
	p.mu.Lock()
	p.text += text
	if over := len(p.text) - maxProgress; over > 0 {
		p.text = p.text[over:]
	}
	p.text = strings.ToValidUTF8(p.text, "\ufffd")
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // the sender is awake already
	}
}

// event adds the output of a run.
func (p *progress) event(e executor.Event) error {
	switch e.Kind {
	case executor.EventStdout, executor.EventStderr:
		p.put(string(e.Data[max(len(e.Data)-maxProgress, 0):]))
	}
	return nil
}

// step adds a step that is not output of the code.
func (p *progress) step(s executor.Progress) {
	p.put(s.What + "\n")
	p.log(s.What)
}
