package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

// world is a tool over a backend in memory, in a synctest bubble.
type world struct {
	*testing.T
	b *fake.Backend
	*tool.Tool
}

func bubble(t *testing.T, opts fake.Options, o tool.Options, so sessions.Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := fake.New(opts)
		x, err := b.Open(driver.Env{Instance: "a"})
		if err != nil {
			t.Fatal(err)
		}
		so.Instance = "a"
		m, err := sessions.New(x, sessions.NewMemoryStore(), so)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		defer m.Close(context.WithoutCancel(t.Context()))
		tl, err := tool.New(x, m, o)
		if err != nil {
			t.Fatal(err)
		}
		f(&world{t, b, tl})
	})
}

// call makes a call and fails the test if the executor fails.
func (w *world) call(conversation, arguments string) tool.Output {
	w.Helper()
	out, err := w.Call(w.Context(), tool.Conversation{ID: conversation}, arguments, nil)
	if err != nil {
		w.Errorf("%s: %v", arguments, err)
	}
	return out
}

func has(t testing.TB, what, got string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(got, want) {
			t.Errorf("got %s %q, want %q in it", what, got, want)
		}
	}
}

func TestConversationsKeepTheirState(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{}, func(w *world) {
		first := w.call("chat-1", `x = 20`)
		if first.Stderr != "" {
			w.Errorf("got notes %q on the first call ever, which has lost nothing", first.Stderr)
		}
		second := w.call("chat-1", "Now:\n```python\nprint(x + 1)\n```")
		if second.Stdout != "21\n" || second.Stderr != "" || !second.Success || second.Error != "" {
			w.Errorf("got %+v, want 21 and no notes", second)
		}
		other := w.call("chat-2", `print(x)`)
		if other.Success {
			w.Error("another conversation sees the variables")
		}
		has(w, "error", other.Error, "NameError", "define or import x first")
		js := w.call("chat-1", `{"code": "write(\"a.txt\", \"hi\")", "language": "js"}`)
		if len(js.Files) != 1 || js.Files[0].Name != "a.txt" || string(js.Files[0].Base64) != "hi" || js.Language != executor.JavaScript {
			w.Errorf("got %+v, want the file of the other language", js)
		}
		if js.Stderr != "" {
			w.Errorf("got notes %q where another language began, which has lost nothing", js.Stderr)
		}
		if got := w.call("chat-1", `print(read("a.txt"))`); got.Stdout != "hi\n" {
			w.Errorf("got %+v, want the file that the other language made", got)
		}
		if n := len(w.b.Sandboxes()); n != 2 {
			w.Errorf("got %d sandboxes, want one for each conversation", n)
		}
		if err := w.Reset(w.Context(), tool.Conversation{ID: "chat-1"}); err != nil {
			w.Error(err)
		}
		if n := len(w.b.Sandboxes()); n != 1 {
			w.Errorf("got %d sandboxes after a reset, want 1", n)
		}
		if got := w.call("chat-1", `x = 1`); got.Stderr != "" {
			w.Errorf("got notes %q after a reset, which was wanted", got.Stderr)
		}
	})
}

// If a session can have only one language, a conversation has a session for each language.
func TestLanguagesThatCannotBeMixed(t *testing.T) {
	bubble(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureMixedLanguages)}, tool.Options{}, sessions.Options{}, func(w *world) {
		w.call("c", `x = 1`)
		w.call("c", `{"code": "x = 2", "language": "javascript"}`)
		if got := w.call("c", `print(x)`); got.Stdout != "1\n" {
			w.Errorf("got %+v, want the variable of Python", got)
		}
		if got := w.call("c", `{"code": "print(x)", "language": "javascript"}`); got.Stdout != "2\n" {
			w.Errorf("got %+v, want the variable of JavaScript", got)
		}
		if n := len(w.b.Sandboxes()); n != 2 {
			w.Errorf("got %d sandboxes, want one for each language", n)
		}
		if err := w.Reset(w.Context(), tool.Conversation{ID: "c"}); err != nil {
			w.Error(err)
		}
		if n := len(w.b.Sandboxes()); n != 0 {
			w.Errorf("got %d sandboxes after a reset, want none", n)
		}
	})
}

func TestFilesAndPackagesOfACall(t *testing.T) {
	bubble(t, fake.Options{Packages: []string{"six"}}, tool.Options{}, sessions.Options{}, func(w *world) {
		out := w.call("c", `{"code": "print(read(\"in/a.txt\"), imported(\"six\"))", "packages": ["six"], "files": {"in/a.txt": "hi"}}`)
		if out.Stdout != "hi true\n" {
			w.Errorf("got %+v, want file and package to be there", out)
		}
		out = w.call("c", `{"code": "print(1)", "packages": ["nonesuch"]}`)
		if out.Success || out.Stdout != "" {
			w.Errorf("got %+v, want the code not to run without its package", out)
		}
		has(w, "error", out.Error, "could not be installed, so the code was not run", "nonesuch", "Hint")
		out = w.call("c", `{"code": "print(1)", "files": {"in": "x"}}`)
		has(w, "error", out.Error, `The file "in" could not be written`)
		out = w.call("c", `read("b.txt")`)
		has(w, "error", out.Error, `in /workspace there are: "in/"`)
	})
}

func TestTimeoutAndLostState(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{}, func(w *world) {
		w.call("c", `x = 1`)
		out := w.call("c", `{"code": "print(\"before\")\nforever()", "timeout": 2}`)
		if out.Stdout != "before\n" || out.ExecutionTime < 2 || out.ExecutionTime > 4 {
			w.Errorf("got %+v, want what was printed in 2 s", out)
		}
		has(w, "error", out.Error, "stopped by its timeout, after 2", "Variables and files are still there.")
		out = w.call("c", `{"code": "deafen()\nforever()", "timeout": 2}`)
		has(w, "error", out.Error, "All variables are gone; files are still there.")
		has(w, "notes", w.call("c", `y = 1`).Stderr, "This run began without variables of earlier calls")
		began := time.Now()
		w.call("c", `forever()`)
		if took := time.Since(began).Round(time.Second); took != tool.DefaultTimeout {
			w.Errorf("without a timeout it took %v, want %v", took, tool.DefaultTimeout)
		}
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		// A call that only lists files cannot tell the model about the loss, so the next call does.
		if _, _, err := w.ListFiles(w.Context(), tool.Conversation{ID: "c"}, "", ""); err != nil {
			w.Error(err)
		}
		out = w.call("c", `print(y)`)
		has(w, "notes", out.Stderr, "This is a new sandbox, because the earlier one has ended, as it does when it is not used for long or when it fails: variables and files of earlier calls are gone")
		has(w, "error", out.Error, "began without variables of earlier calls. Define y again")
		if got := w.call("c", `x = 1`); got.Stderr != "" {
			w.Errorf("got notes %q, want the loss said once", got.Stderr)
		}
	})
}

// A backend that does not answer is given up after a while, and the model is told why its variables
// are gone.
func TestUnavailableBackend(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{}, func(w *world) {
		w.call("c", `x = 1`)
		silence := func(n int) {
			for _, op := range []fake.Op{fake.OpRefresh, fake.OpLookup, fake.OpAttach} {
				w.b.Fail(op, n, driver.Fail(executor.ErrUnavailable, executor.RanNo, nil))
			}
		}
		silence(-1)
		if _, err := w.Call(w.Context(), tool.Conversation{ID: "c"}, `x`, nil); !errors.Is(err, executor.ErrUnavailable) {
			w.Fatalf("got %v, want the backend to be away", err)
		}
		time.Sleep(sessions.DefaultReplace + time.Second)
		out := w.call("c", `print(2)`)
		silence(0)
		if out.Stdout != "2\n" {
			w.Errorf("got %+v", out)
		}
		has(w, "notes", out.ForModel().Text, "This is a new sandbox, because the service that ran the earlier one does not answer: variables and files of earlier calls are gone.")
	})
}

// The model is told what the checkpoint of the manager has kept, and what it has not.
func TestKeptIsNamed(t *testing.T) {
	kept := sessions.Checkpoints{Every: 1, Key: bytes.Repeat([]byte{7}, 32)}
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{Checkpoint: kept}, func(w *world) {
		w.call("c", `write("a.txt", "hi")
x = 41
def f(): pass`)
		for _, id := range w.b.Sandboxes() {
			w.b.Break(id)
		}
		out := w.call("c", `print(read("a.txt"), x + 1)`)
		if out.Stdout != "hi 42\n" {
			w.Errorf("got %+v, want the kept file and the variable", out)
		}
		has(w, "notes", out.Stderr, "with the variables x, and the files a.txt. Not kept: f (functions are not carried)")
	})
}

func TestWhatIsNotRun(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{MaxCode: 10}, sessions.Options{MaxPerSubject: 1}, func(w *world) {
		for arguments, want := range map[string]string{
			`{}`:                                   `"code" is missing`,
			`{"code": ""}`:                         `"code" is empty`,
			`{"code": "print(12345)"}`:             "The code has 12 bytes; at most 10 are allowed.",
			`{"code": "1", "language": "cobol"}`:   "Use python, javascript or bash.",
			`{"code": "1", "packages": ["a b c"]}`: "is not the name of a package",
		} {
			out := w.call("c", arguments)
			has(w, "error", out.Error, want)
			if out.Success {
				w.Errorf("%s: got success", arguments)
			}
		}
		if n := w.b.Calls(fake.OpCreate); n != 0 {
			w.Errorf("got %d sandboxes, want none for calls that cannot work", n)
		}
		if _, err := w.Call(w.Context(), tool.Conversation{}, "1", nil); !errors.Is(err, executor.ErrInvalid) {
			w.Errorf("without an ID: got %v, want ErrInvalid", err)
		}
		ada := func(id string) (tool.Output, error) {
			return w.Call(w.Context(), tool.Conversation{ID: id, Subject: "ada"}, "1", nil)
		}
		if _, err := ada("1"); err != nil {
			w.Error(err)
		}
		out, err := ada("2")
		if !errors.Is(err, executor.ErrDenied) {
			w.Errorf("got %v, want the limit of the manager", err)
		}
		has(w, "error", out.Error, "Refused by a rule of this service: max_per_subject")
		out, err = w.Call(w.Context(), tool.Conversation{ID: "1", Subject: "eve"}, "1", nil)
		if !errors.Is(err, executor.ErrDenied) || out.Success {
			w.Errorf("got %+v, %v, want the conversation of another subject to be refused", out, err)
		}
		w.b.Fail(fake.OpRun, 1, driver.Fail(executor.ErrUnavailable, executor.RanNo, errors.New("dial 10.0.0.1:99")))
		out, err = ada("1")
		if !errors.Is(err, executor.ErrUnavailable) {
			w.Errorf("got %v, want ErrUnavailable for the logs", err)
		}
		if want := "No sandbox is available at the moment. Try again later, or answer without running code."; out.Error != want {
			w.Errorf("got error %q, want %q", out.Error, want)
		}
	})
}

func TestCancel(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{}, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		var seen []executor.EventKind
		out, err := w.Call(ctx, tool.Conversation{ID: "c"}, "print(1)\nforever()", func(e executor.Event) error {
			if seen = append(seen, e.Kind); e.Kind == executor.EventStdout {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || out.Success || out.Stdout != "1\n" {
			w.Errorf("got %+v, %v, want what was printed before the end", out, err)
		}
		has(w, "error", out.Error, "cancelled")
		if want := []executor.EventKind{executor.EventStarted, executor.EventStdout}; !slices.Equal(seen, want) {
			w.Errorf("got events %q, want %q", seen, want)
		}
		if got := w.call("c", "print(2)"); got.Stdout != "2\n" {
			w.Errorf("got %+v, want the session to go on", got)
		}
	})
}

// A script is a command. The backend in memory has no command of that name, and says so.
func TestBashIsACommand(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{}, sessions.Options{}, func(w *world) {
		out := w.call("c", "```bash\nls\n```")
		if out.Language != tool.Bash {
			w.Errorf("got language %s, want bash", out.Language)
		}
		has(w, "stderr", out.Stderr, "bash: not found")
		has(w, "error", out.Error, "exit code 127", "no such command")
	})
}

func TestOptionsAreChecked(t *testing.T) {
	x, err := fake.New(fake.Options{}).Open(driver.Env{Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for name, o := range map[string]tool.Options{
		"name":      {Name: "run code"},
		"timeout":   {Timeout: -1},
		"languages": {Languages: []executor.Language{"r", tool.Bash}},
		"packages":  {Packages: map[executor.Language][]string{executor.Python: {"numpy", "-x"}}},
	} {
		if _, err := tool.New(x, nil, o); !errors.Is(err, executor.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		} else {
			has(t, "error", err.Error(), name)
		}
	}
}

func TestDefinitionOfATool(t *testing.T) {
	bubble(t, fake.Options{}, tool.Options{Name: "python_3"}, sessions.Options{}, func(w *world) {
		got, err := json.Marshal(w.Definition())
		if err != nil {
			w.Fatal(err)
		}
		has(w, "definition", string(got), `"python_3"`)
	})
}
