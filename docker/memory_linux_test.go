package docker

import (
	"errors"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// heldInSockets fills connections over the loopback interface until there are 200 MiB in them, and
// says what the limit of memory counts.
const heldInSockets = `
import os, socket
l = socket.socket()
l.bind(("127.0.0.1", 0))
l.listen(100)
keep, held = [], 0
while held < 200 << 20:
    a = socket.create_connection(l.getsockname())
    b = l.accept()[0]
    for s in (a, b):
        s.setblocking(False)
        try:
            while True: held += s.send(b"x" * 65536)
        except BlockingIOError: pass
    keep += [a, b]
counted = int(open("/sys/fs/cgroup/memory/memory.usage_in_bytes").read())
print("more is held than is counted" if held > counted else "all is counted")`

// TestMemoryOfSockets shows what the limit of memory is worth: version 2 of control groups counts
// what waits in sockets, version 1 does not, and strict_memory refuses it.
func TestMemoryOfSockets(t *testing.T) {
	t.Parallel()
	f, err := testEngine(t).facts(t.Context())
	check(t, err)
	strict := open(t, func(c *Config) { c.StrictMemory = true })
	s, err := strict.Create(t.Context(), executor.Spec{})
	if f.info.CgroupVersion != "1" {
		check(t, err)
		defer s.Close()
		r, err := create(t, strict, executor.Spec{Limits: small}).Run(t.Context(), executor.Request{Code: heldInSockets}, nil)
		if err != nil || r.Reason != executor.ReasonMemory {
			t.Errorf("200 MiB in sockets with a limit of %d: got %+v, %v", small.MemoryBytes, r, err)
		}
		return
	}
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrUnsupported || !strings.Contains(err.Error(), "strict_memory") {
		t.Errorf("strict: got %v", err)
	}
	says(t, create(t, open(t), executor.Spec{Limits: small}), heldInSockets, "more is held than is counted")
}
