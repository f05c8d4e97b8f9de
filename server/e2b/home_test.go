package e2b

import (
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"

	fspb "github.com/execbroker/execbroker/internal/envd/filesystempb"
)

// TestHome tests the directory in which programs of E2B have their files: in code, as cwd of
// contexts and of files.
func TestHome(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.ask(200, d.http, "POST", "path=/home/user/a.txt", octets, []byte("abc"))
	s, err := d.files.Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "/home/user/a.txt"}))
	if err != nil || s.Msg.Entry.Path != "/home/user/a.txt" || s.Msg.Entry.Size != 3 {
		t.Errorf("got %v, %v", s, err)
	}
	l, err := d.files.ListDir(t.Context(), connect.NewRequest(&fspb.ListDirRequest{Path: "/home/user"}))
	if err != nil || len(l.Msg.Entries) != 1 || l.Msg.Entries[0].Path != "/home/user/a.txt" {
		t.Errorf("got %v, %v", l, err)
	}
	s, err = d.files.Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "~/a.txt"}))
	if err != nil || s.Msg.Entry.Path != "/home/user/a.txt" {
		t.Errorf("got %v, %v", s, err)
	}
	text := func(code string, more ...string) any {
		return the(d.run(d.box.SandboxID, body(code, more...)), "stdout")["text"]
	}
	if got := text(`print(read("/home/user/a.txt"), read("a.txt"), cwd())`); got != "abc abc /workspace\n" {
		t.Errorf("got %q", got)
	}
	text("symlink(\"a.txt\", \"/workspace/link\")\nprint(1)")
	s, err = d.files.Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "link"}))
	if err != nil || s.Msg.Entry.GetSymlinkTarget() != "/home/user/a.txt" {
		t.Errorf("got %v, %v", s, err)
	}
	rec := d.do("POST", "/contexts", `{"language": "python", "cwd": "/home/user"}`, at(d.box.SandboxID, interpreterPort)...)
	x := decode[contextAnswer](t, rec)
	if got := text(`print(read("a.txt"))`, `"context_id": "`+x.ID+`"`); x.Cwd != "/home/user" || got != "abc\n" {
		t.Errorf("got %+v, %q", x, got)
	}
	if _, err := d.files.Remove(t.Context(), connect.NewRequest(&fspb.RemoveRequest{Path: "/home/user"})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("got %v, want that the working directory stays", err)
	}
}

// TestWithoutHome tests backends without aliases, and templates that have something in the way:
// these are asked for one once.
func TestWithoutHome(t *testing.T) {
	w := newWorld(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureAliases)}, Config{})
	w.create("")
	w = newWorld(t, fake.Options{}, Config{})
	w.b.Fail(fake.OpCreate, 1, fail(executor.ErrUnsupported))
	w.create("")
	w.create("")
	if got := aliasesOf(t, w); !slices.EqualFunc(got, [][]string{nil, nil}, slices.Equal) {
		t.Errorf("got %q", got)
	}
	w = newWorld(t, fake.Options{}, Config{Spec: executor.Spec{Aliases: []string{"/mnt/data"}}})
	w.create("")
	if got := aliasesOf(t, w); !slices.EqualFunc(got, [][]string{{"/mnt/data", "/home/user"}}, slices.Equal) {
		t.Errorf("got %q", got)
	}
}

func aliasesOf(t *testing.T, w world) (all [][]string) {
	t.Helper()
	for i, err := range w.s.x.Sessions(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i.Aliases)
	}
	return all
}
