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
  "another-nonce": () => new Writer((b) => Deno.stdout.write(b), new Uint8Array(16)).send(FROM_HOST.STARTED, run.id, new Uint8Array(4)),
  "another-id": () => writer.send(FROM_HOST.STARTED, run.id + 1, new Uint8Array(4)),
  "unknown-type": () => writer.send(99, run.id),
  "endless-length": () => Deno.stdout.write(new Uint8Array(64).fill(255)),
  "output-before-start": () => writer.send(FROM_HOST.STDOUT, run.id, new Uint8Array(4)),
  "end-before-start": () => writer.send(FROM_HOST.END, run.id, new TextEncoder().encode('\x01{}')),
  "started-twice": () => started() || started(),
  "started-without-a-cell": () => writer.send(FROM_HOST.STARTED, run.id),
  "synced-without-an-end": () => started() || writer.send(FROM_HOST.SYNCED, run.id),
  "output-after-the-end": () => ended() || writer.send(FROM_HOST.STDOUT, run.id, new Uint8Array(4)),
  "end-that-is-no-json": () => started() || writer.send(FROM_HOST.END, run.id, new TextEncoder().encode('\x01{')),
  "file-during-the-run": () => started() || writer.send(FROM_HOST.FILE, run.id, new Uint8Array(64)),
  "file-with-a-bad-name": () => ended() || writer.send(FROM_HOST.FILE, run.id, new Uint8Array(64).fill(1)),
  "data-of-no-file": () => ended() || writer.send(FROM_HOST.DATA, run.id, new Uint8Array(64)),
  "value-that-is-none": () => started() || writer.send(FROM_HOST.OUTPUT, run.id, new Uint8Array([1, 9, 9, 9])),
  "want-without-input": () => started() || writer.send(FROM_HOST.WANT, run.id, new Uint8Array(4)),
  "ready-again": () => writer.send(FROM_HOST.READY, 0, new TextEncoder().encode("{}")),
  "more-than-the-window": () => {
    started();
    for (let i = 0; i < 100; i++) writer.send(FROM_HOST.STDOUT, run.id, new Uint8Array(1 << 19));
  },
  "half-a-frame": () => started() || writer.flushed().then(() => Deno.stdout.write(new Uint8Array([100, 0, 0, 0, 1]))).then(() => Deno.exit(0)),
  "exit": () => started() || writer.flushed().then(() => Deno.exit(7)),
  "fatal": () => started() || writer.send(FROM_HOST.FATAL, 0, new TextEncoder().encode('{"message":"over"}')),
  "fatal-that-is-no-json": () => started() || writer.send(FROM_HOST.FATAL, 0),
  "silence": () => started(),
};
function started() { writer.send(FROM_HOST.STARTED, run.id, new Uint8Array(4)); }
function ended() { started(); writer.send(FROM_HOST.END, run.id, new TextEncoder().encode('\x01{"exit_code":0}')); }
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
	text = strings.Replace(text, "      use();\n      return leftovers.hurry(",
		"      use();\n      const trick = /# trick (.*)/.exec(new TextDecoder().decode(payload))?.[1];\n      if (trick) return writer.send(FROM_HOST.GIVEN, id) || tricks[trick]();\n      return leftovers.hurry(", 1)
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
			if took := time.Since(began); took > 20*time.Second {
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
			h, err := p.session(t.Context(), t.TempDir(), sandboxOptions{memory: defaultMemory, disk: defaultDisk, idle: time.Minute})
			if err == nil {
				h.kill()
				t.Fatal("it started")
			}
			t.Log(err)
		})
	}
}
