package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// heldInSockets fills connections over the loopback interface until there are 300 MiB in them.
const heldInSockets = `
import socket, time
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen(100)
keep, held = [], 0
while held < 300 << 20:
    a = socket.create_connection(l.getsockname())
    b = l.accept()[0]
    for s in (a, b):
        s.setblocking(False)
        try:
            while True: held += s.send(b"x" * 65536)
        except BlockingIOError: pass
    keep += [a, b]
time.sleep(60)`

// TestMemoryOfSockets: the limit of memory is also one of what waits in sockets. Version 2 of
// control groups counts it, with version 1 the supervisor adds it up, and strict_memory refuses
// version 1.
func TestMemoryOfSockets(t *testing.T) {
	t.Parallel()
	t.Run("limit", func(t *testing.T) {
		t.Parallel()
		r, err := create(t, open(t), executor.Spec{Limits: small}).Run(t.Context(), executor.Request{Code: heldInSockets}, nil)
		if err != nil || r.Reason != executor.ReasonMemory {
			t.Errorf("300 MiB in sockets with a limit of %d: got %+v, %v", small.MemoryBytes, r, err)
		}
	})
	t.Run("strict", func(t *testing.T) {
		t.Parallel()
		f, err := testEngine(t).facts(t.Context())
		check(t, err)
		s, err := open(t, func(c *Config) { c.StrictMemory = true }).Create(t.Context(), executor.Spec{})
		if f.info.CgroupVersion != "1" {
			check(t, err)
			check(t, s.Close())
			return
		}
		var e *executor.Error
		if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || !strings.Contains(err.Error(), "strict_memory") {
			t.Errorf("strict: got %v", err)
		}
	})
}
