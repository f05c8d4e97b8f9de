package runner

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

// search is code that looks for what %s encodes in the memory of the processes that it can read.
// What it looks for is itself in that memory only in pieces.
const search = `
import os
want = bytes.fromhex("%s")
head, tail = want[:8], want[8:]
del want
for pid in [%s]:
    try:
        maps, memory = open("/proc/%%s/maps" %% pid).readlines(), os.open("/proc/%%s/mem" %% pid, os.O_RDONLY)
    except OSError:
        continue
    for line in maps:
        first, last = (int(x, 16) for x in line.split()[0].split("-"))
        while first < last:
            try:
                data = os.pread(memory, min(last - first, 1 << 24), first)
            except (OSError, OverflowError):
                break
            at = data.find(head)
            while at >= 0:
                if data[at + 8:at + 8 + len(tail)] == tail:
                    print("found in", line.strip())
                at = data.find(head, at + 1)
            first += len(data) or last
            del data
print("searched")
`

// TestEarlierRunsAreForgotten: what a run was given is not in the memory of the interpreters that
// are started after it. The interpreter that was given it has the same user, and can be read until
// it is reset.
func TestEarlierRunsAreForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		given := func(kind string) string { return "of-" + kind + "-" + strings.Repeat("7a", 16) }
		env := func(kind string) map[string]string { return map[string]string{"GIVEN": given(kind)} }
		for _, req := range []executor.Request{
			{Language: executor.Python, Code: "0 # " + given("code"), Env: env("variable"), Stdin: strings.NewReader(given("input"))},
			{Command: []string{"/bin/sh", "-c", "cat; : " + given("command")}, Dir: s.workdir, Env: env("variable"), Stdin: strings.NewReader(given("input"))},
		} {
			req.Limits = executor.RunLimits{OutputBytes: 1 << 20, WallTime: executor.NoLimit}
			if r := s.do(t.Context(), req); r.err != nil || r.Code != 0 {
				t.Fatalf("got %+v", r)
			}
		}
		look := func(kind, name, processes string) {
			code := fmt.Sprintf(search, hex.EncodeToString([]byte(given(kind))), processes)
			r := s.do(t.Context(), executor.Request{Language: executor.Python, Context: name, Code: code})
			if r.err != nil || r.stdout != "searched\n" {
				t.Errorf("what was given as %s, context %q: got %v\n%s%s", kind, name, r.err, r.stdout, r.stderr)
			}
		}
		kinds := []string{"variable", "input", "code", "command"}
		for _, kind := range kinds {
			look(kind, "new-"+kind, `"self"`)
		}
		if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
			t.Fatal(err)
		}
		for _, kind := range kinds {
			look(kind, "", `p for p in os.listdir("/proc") if p.isdigit()`)
			if err := s.Reset(t.Context(), executor.Interpreter{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
