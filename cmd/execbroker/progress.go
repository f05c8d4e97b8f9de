package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

const (
	patience = time.Second            // shorter work is not reported
	redraw   = 100 * time.Millisecond // interval of updates on a terminal
	repeat   = 10 * time.Second       // interval of repetitions of the same step where lines cannot be replaced
	lineSize = 78                     // length of a line that must be erased again
)

// progress tells people on stderr about work that takes longer than a moment: on a terminal in one
// line that is updated and erased, elsewhere in separate lines. The zero value is silent.
type progress struct {
	w   io.Writer // nil: silent
	tty bool

	mu    sync.Mutex
	timer *time.Timer // runs until the work counts as long; nil: no work
	due   bool        // the work counts as long
	now   executor.Progress
	said  string    // the last step that was written
	when  time.Time // when it was written
	drawn bool      // the line is on the terminal and must be erased
}

func newProgress(w io.Writer) *progress { return &progress{w: w, tty: isTerminal(w)} }

// begin starts a piece of work that may take long. Steps that are reported to the context are
// shown. The caller must call end.
func (p *progress) begin(ctx context.Context, what string) (_ context.Context, end func()) {
	if p.w == nil {
		return ctx, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.due, p.said = executor.Progress{What: what}, false, ""
	timer := time.AfterFunc(patience, p.tooLong)
	p.timer = timer
	return executor.WithProgress(ctx, p.step), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer == timer {
			timer.Stop()
			p.timer = nil
			p.erase()
		}
	}
}

func (p *progress) tooLong() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.due = true
		p.show()
	}
}

// step is the function for executor.WithProgress.
func (p *progress) step(s executor.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.now = s
		p.show()
	}
}

// show writes the step if it is time for it. The caller holds p.mu.
func (p *progress) show() {
	if !p.due || p.now.What == "" {
		return
	}
	pause := repeat
	if p.tty {
		pause = redraw
	}
	if p.now.What == p.said && time.Since(p.when) < pause {
		return
	}
	text := plain(p.now.What)
	if p.now.Total > 0 {
		text += fmt.Sprintf(" %d%%", 100*min(max(p.now.Done, 0), p.now.Total)/p.now.Total)
	}
	p.said, p.when = p.now.What, time.Now()
	if !p.tty {
		fmt.Fprintf(p.w, "execbroker: %s\n", text)
		return
	}
	for utf8.RuneCountInString(text) > lineSize {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	p.drawn = true
}

// erase erases the line. The caller holds p.mu.
func (p *progress) erase() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// pause erases the line before other output.
func (p *progress) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}
