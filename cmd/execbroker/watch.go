package main

import (
	"bytes"
	"context"
	"os"
	"time"

	"github.com/execbroker/execbroker/backends"
)

// watchEvery is how often a server looks at its configuration.
const watchEvery = time.Second

// watch changes b to the configuration whenever its file changes, and when the program gets a
// hangup, until ctx ends. A file with an error changes nothing. Replicas that watch the same file
// all change. last is the text of the file from before b was opened: a change that came meanwhile
// counts.
func (a *app) watch(ctx context.Context, b *backends.Broker, last []byte) {
	now := make(chan struct{}, 1)
	a.signals.onHangup(func() {
		select {
		case now <- struct{}{}:
		default:
		}
	})
	defer a.signals.onHangup(nil)
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			asked = true
		case <-t.C:
		}
		text, err := os.ReadFile(a.config)
		if err != nil || bytes.Equal(text, last) && !asked {
			continue // an editor may be replacing it
		}
		last = text
		c, err := a.routed()
		if err == nil {
			err = a.inFile(b.Reload(ctx, a.shared(c)))
		}
		if err != nil {
			a.log().WarnContext(ctx, "the configuration has changed, and is not used", "file", a.config, "error", err)
		} // else the broker tells that it has changed
	}
}
