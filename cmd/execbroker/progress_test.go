package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
)

func TestProgress(t *testing.T) {
	type step struct {
		wait time.Duration
		p    executor.Progress
	}
	for name, c := range map[string]struct {
		tty   bool
		steps []step
		want  string
	}{
		"quick":         {steps: []step{{900 * time.Millisecond, executor.Progress{What: "a"}}}},
		"quick-tty":     {tty: true, steps: []step{{900 * time.Millisecond, executor.Progress{What: "a"}}}},
		"slow":          {steps: []step{{2 * time.Second, executor.Progress{}}}, want: "execbroker: begin\n"},
		"steps":         {steps: []step{{2 * time.Second, executor.Progress{What: "a"}}, {time.Second, executor.Progress{What: "b"}}}, want: "execbroker: begin\nexecbroker: a\nexecbroker: b\n"},
		"early-step":    {steps: []step{{100 * time.Millisecond, executor.Progress{What: "a"}}, {2 * time.Second, executor.Progress{What: "a"}}}, want: "execbroker: a\n"},
		"percent":       {steps: []step{{2 * time.Second, executor.Progress{What: "a", Done: 1, Total: 3}}, {11 * time.Second, executor.Progress{What: "a", Done: 9, Total: 3}}}, want: "execbroker: begin\nexecbroker: a 33%\nexecbroker: a 100%\n"},
		"seldom":        {steps: []step{{2 * time.Second, executor.Progress{What: "a", Done: 1, Total: 3}}, {time.Second, executor.Progress{What: "a", Done: 2, Total: 3}}}, want: "execbroker: begin\nexecbroker: a 33%\n"},
		"tty":           {tty: true, steps: []step{{2 * time.Second, executor.Progress{What: "a", Done: 1, Total: 2}}, {time.Second, executor.Progress{What: "a", Done: 2, Total: 2}}}, want: "\r\x1b[Kbegin\r\x1b[Ka 50%\r\x1b[Ka 100%\r\x1b[K"},
		"tty-redraw":    {tty: true, steps: []step{{2 * time.Second, executor.Progress{What: "a"}}, {10 * time.Millisecond, executor.Progress{What: "a"}}}, want: "\r\x1b[Kbegin\r\x1b[Ka\r\x1b[K"},
		"hostile":       {steps: []step{{2 * time.Second, executor.Progress{What: "\x1b[2J"}}}, want: "execbroker: begin\nexecbroker: \"\\x1b[2J\"\n"},
		"tty-long-line": {tty: true, steps: []step{{2 * time.Second, executor.Progress{What: strings.Repeat("é", 200)}}}, want: "\r\x1b[Kbegin\r\x1b[K" + strings.Repeat("é", 78) + "\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				p := &progress{w: &b, tty: c.tty}
				ctx, end := p.begin(t.Context(), "begin")
				for _, s := range c.steps {
					time.Sleep(s.wait)
					synctest.Wait()
					if s.p.What != "" {
						executor.ReportProgress(ctx, s.p)
					}
				}
				end()
				executor.ReportProgress(ctx, executor.Progress{What: "late"})
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := b.String(); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestProgressMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := &progress{w: &b, tty: true}
		ctx, end := p.begin(t.Context(), "begin")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		v := &show{out: &b, err: &b, progress: p}
		if err := v.event(executor.Event{Kind: executor.EventStdout, Data: []byte("out\n")}); err != nil {
			t.Error(err)
		}
		executor.ReportProgress(ctx, executor.Progress{What: "again"})
		end()
		if got, want := b.String(), "\r\x1b[Kbegin\r\x1b[Kout\n\r\x1b[Kagain\r\x1b[K"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestProgressIsSilent(t *testing.T) {
	p := &progress{}
	ctx, end := p.begin(t.Context(), "begin")
	executor.ReportProgress(ctx, executor.Progress{What: "a"})
	p.pause()
	end()
}
