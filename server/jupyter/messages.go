package jupyter

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/complete"
)

// handlers answer requests in their turn. Without an answer, a request gets none.
var handlers = map[string]func(*kernel, context.Context, *task) any{
	"execute_request":     (*kernel).execute,
	"kernel_info_request": func(k *kernel, _ context.Context, _ *task) any { return k.information() },
	"complete_request":    (*kernel).completion,
	"inspect_request":     (*kernel).inspection,
	"is_complete_request": (*kernel).isComplete,
	"history_request":     (*kernel).history,
	"comm_info_request":   noComms,
	"comm_open":           (*kernel).refuseComm,
	"interrupt_request":   func(k *kernel, _ context.Context, _ *task) any { return okay{"ok"} },
}

// immediate are the handlers of requests on the channel for control, which do not wait for their
// turn.
var immediate = map[string]func(*kernel, context.Context, request) any{
	"kernel_info_request": func(k *kernel, _ context.Context, _ request) any { return k.information() },
	"interrupt_request": func(k *kernel, _ context.Context, _ request) any {
		k.interrupt()
		return okay{"ok"}
	},
	"shutdown_request": (*kernel).shutdown,
}

// okay is an answer that says no more.
type okay struct {
	Status string `json:"status"`
}

// answer answers a request of a client, between the messages that the kernel is busy and idle.
func (k *kernel) answer(ctx context.Context, t *task) {
	k.become(busy, t.q.raw)
	var content any
	if t.abort {
		content = map[string]any{"status": "aborted", "execution_count": k.count}
	} else {
		content = handlers[t.q.Type](k, ctx, t)
	}
	if content != nil {
		t.conn.reply(t.q.channel, replyTo(t.q.Type), t.q.raw, content)
	}
	k.become(idle, t.q.raw)
	if t.lost { // clients then connect again, and give up what they wait for
		k.publish("status", nil, status{restarting})
	}
}

// information says what the kernel is.
func (k *kernel) information() any {
	return map[string]any{
		"status": "ok", "protocol_version": protocolVersion, "implementation": "execbroker", "implementation_version": k.about.version,
		"banner": "execbroker: " + k.about.display + "\nEach kernel has a sandbox of its own.\n", "help_links": []any{}, "debugger": false,
		"language_info": k.about.information(),
	}
}

func (k *kernel) shutdown(ctx context.Context, q request) any {
	var a struct {
		Restart bool `json:"restart"`
	}
	if err := json.Unmarshal(q.content, &a); err != nil {
		return failed("ValueError", "the content is not that of a shutdown_request")
	}
	if a.Restart {
		if err := k.restart(ctx); err != nil {
			return failed("SandboxError", explain(err))
		}
	} else if leave, ok := k.s.live.Enter(); ok { // the connection of this request ends with it
		go func() {
			defer leave()
			if err := k.end(context.WithoutCancel(ctx)); err != nil {
				k.s.cfg.Log.WarnContext(ctx, "ending a kernel", "kernel", k.id, "err", err)
			}
		}()
	}
	return map[string]any{"status": "ok", "restart": a.Restart}
}

// isComplete reports whether code may end where it does.
func (k *kernel) isComplete(_ context.Context, t *task) any {
	var q struct {
		Code string `json:"code"`
	}
	if err := json.Unmarshal(t.q.content, &q); err != nil {
		return map[string]string{"status": "unknown"}
	}
	lines := strings.Split(q.Code, "\n")
	if complete.Statement(k.about.language, lines) {
		return map[string]string{"status": "complete"}
	}
	last := strings.TrimRight(lines[len(lines)-1], " \t\r")
	indent := last[:len(last)-len(strings.TrimLeft(last, " \t"))]
	if strings.HasSuffix(last, ":") && k.about.language == executor.Python {
		indent += "    "
	}
	return map[string]string{"status": "incomplete", "indent": indent}
}

func noComms(*kernel, context.Context, *task) any {
	return map[string]any{"status": "ok", "comms": struct{}{}}
}

// refuseComm closes what a client opens: nothing in a sandbox speaks to widgets.
func (k *kernel) refuseComm(_ context.Context, t *task) any {
	var q struct {
		ID string `json:"comm_id"`
	}
	if err := json.Unmarshal(t.q.content, &q); err == nil {
		k.publish("comm_close", t.q.raw, map[string]any{"comm_id": q.ID, "data": map[string]string{"reason": "this kernel has no comms"}})
	}
	return nil
}
