package e2b

import (
	"bytes"
	"fmt"
	"maps"
	"mime/multipart"
	"testing"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor"
	fspb "github.com/execbroker/execbroker/internal/envd/filesystempb"
	"github.com/execbroker/execbroker/internal/fake"
)

// What a client says of files belongs to their names: each upload replaces it, clients that rename
// and remove files take it along, and every name of a file has it.
func TestFileMetadata(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	ctx := t.Context()
	want := func(name string, want map[string]string) {
		t.Helper()
		s, err := d.files.Stat(ctx, connect.NewRequest(&fspb.StatRequest{Path: name}))
		if err != nil || !maps.Equal(s.Msg.Entry.Metadata, want) {
			t.Errorf("%s: got %v, %v, want %v", name, s.Msg.GetEntry().GetMetadata(), err, want)
		}
	}
	said := map[string]string{"author": "ann", "purpose": "to test"}
	headers := []string{"X-Metadata-Author", "ann", "x-metadata-PURPOSE", "to test"}
	if got, want := string(d.ask(200, d.http, "POST", "path=dir/a", octets, []byte("1"), headers...)),
		`[{"name":"a","path":"/home/user/dir/a","type":"file","metadata":{"author":"ann","purpose":"to test"}}]`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want("dir/a", said)
	want("/workspace/dir/a", said)
	want("/home/user/dir/a", said)
	want("dir", nil)
	l, err := d.files.ListDir(ctx, connect.NewRequest(&fspb.ListDirRequest{Path: "dir"}))
	if err != nil || len(l.Msg.Entries) != 1 || !maps.Equal(l.Msg.Entries[0].Metadata, said) {
		t.Errorf("got %v, %v", l, err)
	}

	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for _, name := range []string{"b", "c"} {
		p, err := m.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(p, name)
	}
	m.Close()
	d.ask(200, d.http, "POST", "", m.FormDataContentType(), form.Bytes(), "X-Metadata-A", "1")
	want("b", map[string]string{"a": "1"})
	want("c", map[string]string{"a": "1"})

	rename := func(from, to string) {
		t.Helper()
		r, err := d.files.Move(ctx, connect.NewRequest(&fspb.MoveRequest{Source: from, Destination: to}))
		if err != nil {
			t.Fatal(err)
		}
		if from == "b" && r.Msg.Entry.Metadata["a"] != "1" {
			t.Errorf("got %v", r.Msg.Entry)
		}
	}
	rename("dir", "/workspace/other")
	want("other/a", said)
	rename("b", "other/a") // replaces it
	want("other/a", map[string]string{"a": "1"})
	d.ask(200, d.http, "POST", "path=b", octets, nil)
	want("b", nil) // what has the name now is another file
	d.ask(200, d.http, "POST", "path=c", octets, nil)
	want("c", nil)
	if _, err := d.files.Remove(ctx, connect.NewRequest(&fspb.RemoveRequest{Path: "other"})); err != nil {
		t.Fatal(err)
	}
	d.ask(200, d.http, "POST", "path=other/a/b", octets, nil)
	want("other/a", nil)
}

// What is kept of one sandbox is bounded, and removing files makes room.
func TestMuchMetadata(t *testing.T) {
	m := newMetadata(executor.SessionInfo{})
	said := map[string]string{"a": "1"}
	for i := range maxMetadata {
		if err := m.set(fmt.Sprint("/workspace/d/", i), said); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.set("/workspace/x", said); asAPIError(err).Status != 507 {
		t.Errorf("got %v", err)
	}
	if err := m.set("/workspace/d/1", said); err != nil {
		t.Errorf("one that has some: got %v", err)
	}
	m.move("/workspace/d", "/workspace/e")
	m.move("/workspace/e/2", "/workspace/e/2")
	if m.of("/workspace/e/2") == nil || m.of("/workspace/d/2") != nil || len(m.files) != maxMetadata {
		t.Errorf("got %d files", len(m.files))
	}
	m.remove("/workspace/e")
	if len(m.files) != 0 {
		t.Errorf("got %v", m.files)
	}
}
