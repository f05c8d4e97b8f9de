package pyodide

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/sharetest"
	"github.com/execbroker/execbroker/internal/store"
)

// tricks are actions of a compromised host program, each instead of a run.
const tricks = `
const tricks = {
  "plain-text": () => Deno.stdout.write(new TextEncoder().encode("hello, this is not a frame, and long enough to be taken for one\n")),
  "another-nonce": () => new Writer((b) => Deno.stdout.write(b), new Uint8Array(16)).send(TYPE.STARTED, run.id, cell),
  "another-id": () => writer.send(TYPE.STARTED, run.id + 1, cell),
  "unknown-type": () => writer.send(99, run.id),
  "unknown-flag": () => started() || writer.send(TYPE.DATA, run.id, new Uint8Array(4), CHANNEL.STDOUT, 4),
  "unknown-channel": () => started() || writer.send(TYPE.DATA, run.id, new Uint8Array(4), 4),
  "no-stream": () => started() || writer.send(TYPE.DATA, 0, new Uint8Array(4), CHANNEL.STDOUT),
  "endless-length": () => Deno.stdout.write(new Uint8Array(64).fill(255)),
  "output-before-start": () => writer.send(TYPE.DATA, run.id, new Uint8Array(4), CHANNEL.STDOUT),
  "end-before-start": () => end(),
  "started-twice": () => started() || started(),
  "started-without-a-cell": () => writer.send(TYPE.STARTED, run.id),
  "synced-without-an-end": () => started() || writer.send(TYPE.DONE, run.id, pack({ exit: 0 })),
  "output-after-the-end": () => ended() || writer.send(TYPE.DATA, run.id, new Uint8Array(4), CHANNEL.STDOUT),
  "end-that-is-no-value": () => ended() || writer.send(TYPE.DONE, run.id, new TextEncoder().encode("{}")),
  "names-that-are-none": () => started() || writer.send(TYPE.DATA, run.id, new Uint8Array(4), CHANNEL.ENTRIES, END),
  "file-during-the-run": () => started() || writer.send(TYPE.DATA, run.id, new Uint8Array(64)),
  "file-with-a-bad-name": () => ended() || writer.send(TYPE.DATA, run.id, pack({ path: "../a", kind: 2 }), CHANNEL.ENTRIES),
  "data-of-no-file": () => ended() || writer.send(TYPE.DATA, run.id, new Uint8Array(64)),
  "value-that-is-none": () => started() || writer.send(TYPE.OUTPUT, run.id, new Uint8Array([109, 9, 9, 9])),
  "want-without-input": () => started() || writer.send(TYPE.CREDIT, run.id, new Uint8Array(4)),
  "ready-again": () => writer.send(TYPE.HELLO, 0, pack({})),
  "more-than-the-window": () => {
    started();
    for (let i = 0; i < 100; i++) writer.send(TYPE.DATA, run.id, new Uint8Array(1 << 19), CHANNEL.STDOUT);
  },
  "half-a-frame": () => started() || writer.flushed().then(() => Deno.stdout.write(nonce.subarray(0, 5))).then(() => Deno.exit(0)),
  "exit": () => started() || writer.flushed().then(() => Deno.exit(7)),
  "fatal": () => started() || writer.send(TYPE.BYE, 0, pack({ message: "over" })),
  "fatal-that-is-no-value": () => started() || writer.send(TYPE.BYE, 0),
  "silence": () => started(),
};
const cell = pack({ cell: 1 });
function started() { writer.send(TYPE.STARTED, run.id, cell); }
function end() { writer.send(TYPE.DATA, run.id, new Uint8Array(0), CHANNEL.ENTRIES, END); }
function ended() { started(); end(); }
`

// Whatever a host sends, the run ends soon with a Result or an error of the contract, its process
// is killed, and the session continues with its files.
func TestNonsense(t *testing.T) {
	t.Parallel()
	cache, dir := seeded(t)
	main := filepath.Join(dir, "main.mjs")
	b, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "let draining = false;\n", "let draining = false;\n"+tricks, 1)
	text = strings.Replace(text, "  leftovers.hurry(",
		"  const trick = /# trick (.*)/.exec(new TextDecoder().decode(request.data))?.[1];\n  if (trick) return writer.send(TYPE.OPEN, id) || tricks[trick]();\n  leftovers.hurry(", 1)
	if strings.Count(text, "trick") < 5 {
		t.Fatal("main.mjs is not as this test knows it")
	}
	if err = os.WriteFile(main, []byte(text), 0o644); err == nil {
		err = store.WriteManifest(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), driver.Env{Owner: "test", CacheDir: cache, Wrap: record}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	sessions := sharetest.New(func() executor.Session {
		s := create(t, x, executor.Spec{})
		output(t, s, "open('kept', 'w').write('kept')")
		return s
	})
	for l := range strings.Lines(tricks) {
		name, _, ok := strings.Cut(strings.TrimPrefix(l, "  \""), "\": ")
		if !ok || !strings.HasPrefix(l, "  \"") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sessions.Take(t)
			pid := process(t, s)
			began := time.Now()
			r, err := s.Run(t.Context(), executor.Request{Code: "# trick " + name, Limits: executor.RunLimits{WallTime: time.Second}}, nil)
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("it took %v", took)
			}
			var e *executor.Error
			switch {
			case err == nil && r.Status == executor.StatusKilled && r.Reason == executor.ReasonSandbox && r.StateLost:
			case err == nil && name == "more-than-the-window" && r.Reason == executor.ReasonOutput: // what came first was enough
			case err == nil && name == "silence" && r.Status == executor.StatusTimedOut && r.StateLost:
			case errors.As(err, &e) && e.Kind == executor.ErrUnavailable && e.Ran == executor.RanMaybe && r == nil: // before the start
			default:
				t.Errorf("got %v, %+v", err, r)
			}
			eventually(t, "the process has ended", func() bool { return !alive(pid) })
			if got := output(t, s, "print(open('kept').read())"); got != "kept\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A program that is not Deno, or that ends early, is an error of Create.
func TestBrokenRuntime(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("the stand-in for Deno is a shell script")
	}
	for _, c := range []struct{ name, script string }{
		{"ends-at-once", "exit 1"},
		{"says-something-else", "echo hello, this is not the program that you are looking for; sleep 1000"},
		{"says-nothing-and-ends", "head -c 10 > /dev/null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			deno := filepath.Join(t.TempDir(), "deno")
			writeProgram(t, deno, "#!/bin/sh\n"+c.script+"\n")
			p := &prepared{deno: deno, assets: t.TempDir(), stdlib: stockLibrary, layer: "none"}
			h, err := p.python(t.Context(), t.TempDir(), sandboxOptions{memory: defaultMemory, disk: defaultDisk, idle: time.Minute})
			if err == nil {
				h.kill()
				t.Fatal("it started")
			}
			t.Log(err)
		})
	}
}
