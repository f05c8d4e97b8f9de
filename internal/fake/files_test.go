package fake

import (
	"errors"
	"io/fs"
	"testing"
)

func TestDisk(t *testing.T) {
	d := newDisk(100)
	steps := []struct {
		what string
		do   func() error
		want error
	}{
		{"write", func() error { return d.write("/workspace/a/b.txt", []byte("hello"), 0, true) }, nil},
		{"write without the directory", func() error { return d.write("/workspace/none/b.txt", nil, 0, false) }, fs.ErrNotExist},
		{"write into the system", func() error { return d.write("/etc/x", nil, 0, true) }, fs.ErrPermission},
		{"write over the system", func() error { return d.write("/etc/hostname", nil, 0, true) }, fs.ErrPermission},
		{"write a directory", func() error { return d.write("/workspace/a", nil, 0, true) }, fs.ErrInvalid},
		{"write below a file", func() error { return d.write("/workspace/a/b.txt/c", nil, 0, true) }, fs.ErrInvalid},
		{"write too much", func() error { return d.write("/tmp/big", make([]byte, 96), 0, true) }, errNoSpace},
		{"write as much as there is", func() error { return d.write("/tmp/big", make([]byte, 95), 0, true) }, nil},
		{"remove it", func() error { return d.remove("/tmp/big") }, nil},
		{"link", func() error { return d.symlink("a/b.txt", "/workspace/link") }, nil},
		{"link again", func() error { return d.symlink("a/b.txt", "/workspace/link") }, fs.ErrExist},
		{"link to itself", func() error { return d.symlink("loop", "/workspace/loop") }, nil},
		{"read a loop", func() error { _, err := d.read("/workspace/loop"); return err }, errLoop},
		{"read through a link", func() error { _, err := d.read("/workspace/link"); return err }, nil},
		{"climb by a link", func() error { return d.symlink("../../..", "/workspace/up") }, nil},
		{"read what it leads to", func() error { _, err := d.read("/workspace/up/etc/hostname"); return err }, nil},
		{"make a directory", func() error { return d.mkdir("/workspace/x/y/z") }, nil},
		{"make it again", func() error { return d.mkdir("/workspace/x") }, fs.ErrExist},
		{"move into itself", func() error { return d.rename("/workspace/x", "/workspace/x/y/new") }, fs.ErrInvalid},
		{"move to itself", func() error { return d.rename("/workspace/x", "/workspace/x") }, nil},
		{"move over a directory", func() error { return d.rename("/workspace/a", "/workspace/x") }, fs.ErrExist},
		{"move nothing", func() error { return d.rename("/workspace/none", "/workspace/n") }, fs.ErrNotExist},
		{"move the working directory", func() error { return d.rename("/workspace", "/tmp/w") }, fs.ErrPermission},
		{"move a tree", func() error { return d.rename("/workspace/a", "/workspace/moved") }, nil},
		{"remove the working directory", func() error { return d.remove("/workspace") }, fs.ErrPermission},
		{"remove the root", func() error { return d.remove("/") }, fs.ErrPermission},
		{"remove nothing", func() error { return d.remove("/workspace/none/none") }, nil},
		{"list a file", func() error { _, err := d.list("/workspace/moved/b.txt"); return err }, fs.ErrInvalid},
	}
	for _, s := range steps {
		if err := s.do(); !errors.Is(err, s.want) || s.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", s.what, err, s.want)
		}
	}
	if data, err := d.read("/workspace/moved/b.txt"); err != nil || string(data) != "hello" {
		t.Errorf("got %q, %v", data, err)
	}
	if d.used != size(d.root)-int64(len("sandbox\n")) {
		t.Errorf("got %d bytes used, want %d", d.used, size(d.root))
	}
}

func TestChangedSince(t *testing.T) {
	d := newDisk(0)
	for _, name := range []string{"/workspace/old", "/workspace/dir/in", "/workspace/rewritten"} {
		if err := d.write(name, []byte("x"), 0, true); err != nil {
			t.Fatal(err)
		}
	}
	mark := d.mark()
	for _, err := range []error{
		d.write("/workspace/rewritten", []byte("y"), 0, false),
		d.write("/workspace/new/deep", []byte("z"), 0, true),
		d.write("/tmp/elsewhere", []byte("z"), 0, true),
		d.rename("/workspace/dir", "/workspace/moved"),
		d.symlink("old", "/workspace/link"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]bool{}
	for _, c := range d.changedSince(mark, home) {
		got[c.Name] = true
	}
	if len(got) != 3 || !got["rewritten"] || !got["new/deep"] || !got["moved/in"] {
		t.Errorf("got %v, want what was rewritten, made and moved", got)
	}
}
