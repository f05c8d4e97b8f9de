package docker

import (
	"context"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
)

// exit is the end of a container.
type exit struct {
	ended  bool
	code   int  // exit code; -1 if the engine no longer knows
	oom    bool // the kernel killed something in it because its memory ran out
	killed bool // by somebody who asked the engine for it
}

// exitTimeout bounds the wait for the word of the engine that a container has ended. Its output
// ends a little earlier.
const exitTimeout = 2 * time.Second

// exit asks the engine how a container has ended, by name or ID, whose output has ended. A
// container that has ended is removed at once, and what it was can only be read from the events
// that the engine remembers.
func (e *engine) exit(ctx context.Context, ref string) (exit, error) {
	actx, cancel := e.answer(ctx)
	defer cancel()
	i, err := e.ContainerInspect(actx, ref, client.ContainerInspectOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return exit{}, e.fail(actx, err)
	}
	f, gone := exit{code: -1}, err != nil
	f.ended = gone
	if st := i.Container.State; st != nil && st.Status == container.StateExited {
		f = exit{ended: true, code: st.ExitCode, oom: st.OOMKilled && st.ExitCode == 137}
	}
	ectx, stop := context.WithTimeout(actx, exitTimeout)
	defer stop()
	// From the beginning of what is remembered, by no clock: that of the engine is not ours. Then
	// it tells what happens, until asked to stop.
	stream := e.Events(ectx, client.EventsListOptions{Since: "1", Filters: client.Filters{}.Add("container", ref)})
	for {
		select {
		case m := <-stream.Messages:
			switch m.Action {
			case events.ActionOOM:
				f.oom = true
			case events.ActionKill:
				f.killed = true
			case events.ActionDie:
				f.ended = true
				if code, err := strconv.Atoi(m.Actor.Attributes["exitCode"]); err == nil {
					f.code = code
				}
				f.oom = f.oom && f.code == 137
			case events.ActionDestroy:
				f.ended, gone = true, true
			}
			if f.code >= 0 && (f.killed || gone) {
				return f, nil // a kill may be told after the death that it caused, but before the removal
			}
		case err := <-stream.Err:
			if ectx.Err() != nil && actx.Err() == nil {
				return f, nil // it has not ended, or the engine has forgotten how
			}
			return exit{}, e.fail(actx, err)
		}
	}
}
