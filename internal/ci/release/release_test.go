package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

var date = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// An archive says nothing about when and by whom its files were made.
func TestArchives(t *testing.T) {
	t.Parallel()
	all := func() nodes {
		dir := t.TempDir()
		n := nodes{"top/a": {text: "aa", mode: 0o755}, "top/link": {link: "a"}, "tmp": {mode: fs.ModeDir | fs.ModeSticky | 0o777}, "own": {mode: fs.ModeDir | 0o755, user: 7}}
		write(t, filepath.Join(dir, "sub", "b"), "b")
		if err := n.addTree(dir, "top"); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var first, second bytes.Buffer
	if err := errors.Join(writeTarGz(&first, all(), date), writeTarGz(&second, all(), date)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same files differ")
	}
	var plain bytes.Buffer
	if err := writeTar(&plain, all(), date); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&plain); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(date) || h.Uname != "" {
			t.Errorf("%s: got the time %v and the user %q", h.Name, h.ModTime, h.Uname)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name)
	}
	want := []string{"drwxr-xr-x own/", "dtrwxrwxrwx tmp/", "drwxr-xr-x top/", "-rwxr-xr-x top/a", "Lrwxrwxrwx top/link", "drwxr-xr-x top/sub/", "-rw-r--r-- top/sub/b"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	var packed bytes.Buffer
	if err := writeZip(&packed, nodes{"top/a.exe": {text: "aa", mode: 0o755}}, date); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if len(z.File) != 1 || z.File[0].Name != "top/a.exe" || !z.File[0].Modified.Equal(date) || z.File[0].Mode().Perm() != 0o755 {
		t.Errorf("got %+v", z.File[0].FileHeader)
	}
}

// commitOne makes a repository with one commit.
func commitOne(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "a")
	for _, args := range [][]string{{"init", "-q"}, {"add", "a"}, {"-c", "user.name=a", "-c", "user.email=a@a.example", "commit", "-q", "-m", "a"}} {
		if _, err := runIn(t.Context(), dir, []string{"GIT_COMMITTER_DATE=2026-01-02T03:04:05Z"}, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSource(t *testing.T) {
	t.Parallel()
	dir := commitOne(t)
	s, err := readSource(t.Context(), dir)
	if err != nil || len(s.commit) != 40 || !s.date.Equal(date) || s.changed != nil {
		t.Fatalf("got %+v, %v", s, err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		write(t, filepath.Join(dir, name), "changed")
	}
	if s, err = readSource(t.Context(), dir); err != nil || !slices.Equal(s.changed, []string{"a", "b", "c", "d", "e", "and others"}) {
		t.Errorf("got %q, %v", s.changed, err)
	}
	if _, err := readSource(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory without a repository was accepted")
	}
}

// What is refused is refused before anything is made.
func TestRefusals(t *testing.T) {
	changed := commitOne(t)
	write(t, filepath.Join(changed, "a"), "changed")
	clean := commitOne(t)
	full := filepath.Join(t.TempDir(), "full")
	write(t, filepath.Join(full, "precious"), "")
	for name, c := range map[string]struct {
		dir  string
		args []string
		want string
	}{
		"dirty":             {changed, nil, "a: changed and not committed"},
		"target":            {clean, []string{"-targets", "linux/amd64,plan9/mips"}, "plan9/mips: want some of linux/amd64, "},
		"out":               {clean, []string{"-out", full}, "has other files"},
		"flag":              {clean, []string{"-none"}, "not defined"},
		"dirty-but-told-so": {changed, []string{"-dirty", "-out", full}, "has other files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(c.dir)
			err := Run(t.Context(), c.args, func(context.Context, string, string, ...string) error { return errors.New("never") })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, err := os.Stat("dist"); err == nil {
				t.Error("something was made")
			}
		})
	}
	if _, err := os.Stat(filepath.Join(full, "precious")); err != nil {
		t.Error(err)
	}
}

// checkStatement reads a statement as strictly as its schema: no field that is not in it.
func checkStatement(t *testing.T, text []byte) (*intoto.Statement, *provenance.Provenance) {
	t.Helper()
	s, p := &intoto.Statement{}, &provenance.Provenance{}
	if err := protojson.Unmarshal(text, s); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	predicate, err := protojson.Marshal(s.Predicate)
	if err == nil {
		err = protojson.Unmarshal(predicate, p)
	}
	if err := errors.Join(err, s.Validate(), p.Validate()); err != nil {
		t.Fatal(err)
	}
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("got the types %s and %s", s.Type, s.PredicateType)
	}
	return s, p
}

func TestStatement(t *testing.T) {
	t.Parallel()
	m := maker{version: "0.1.0", targets: []string{"linux/amd64"}, source: source{commit: strings.Repeat("ab", 20)},
		from: []material{{uri: "pkg:npm/b@1"}, {uri: "pkg:npm/a@1", digest: map[string]string{"sha512": strings.Repeat("00", 64)}}, {uri: "pkg:npm/b@1"}}}
	digests := map[string]string{"x.deb": strings.Repeat("cd", 32), "a.tar.gz": strings.Repeat("ef", 32)}
	text, err := m.statement(digests)
	if err != nil {
		t.Fatal(err)
	}
	s, p := checkStatement(t, text)
	if len(s.Subject) != 2 || s.Subject[0].Name != "a.tar.gz" || s.Subject[1].Digest["sha256"] != digests["x.deb"] {
		t.Errorf("got the subjects %v", s.Subject)
	}
	from := p.BuildDefinition.ResolvedDependencies
	if len(from) != 3 || from[0].Digest["gitCommit"] != m.source.commit || from[1].Uri != "pkg:npm/a@1" {
		t.Errorf("got the materials %v", from)
	}
	if again, err := m.statement(digests); err != nil || !bytes.Equal(again, text) {
		t.Errorf("the second statement differs: %v", err)
	}
}

// The chart of a release says its version, and is the same each time.
func TestChart(t *testing.T) {
	t.Parallel()
	pack := func() map[string]string {
		m := maker{root: "../../..", out: t.TempDir(), version: "1.2.3+dirty", source: source{date: date}}
		if err := m.chart(); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(filepath.Join(m.out, "execbroker-1.2.3+dirty.tgz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for r := tar.NewReader(z); ; {
			h, err := r.Next()
			if err == io.EOF {
				return all
			}
			text, rerr := io.ReadAll(r)
			if err := errors.Join(err, rerr); err != nil {
				t.Fatal(err)
			}
			all[h.Name] = h.ModTime.UTC().String() + "\n" + string(text)
		}
	}
	all := pack()
	chart := all["execbroker/Chart.yaml"]
	if !strings.Contains(chart, "\nname: execbroker\n") || !strings.Contains(chart, "\nversion: 1.2.3+dirty\nappVersion: 1.2.3+dirty\n") {
		t.Errorf("got %s", chart)
	}
	for _, name := range []string{"values.yaml", "values.schema.json", "README.md", "templates/_helpers.tpl", "templates/deployment.yaml"} {
		if all["execbroker/"+name] == "" {
			t.Errorf("%s is not in the package", name)
		}
	}
	if !maps.Equal(all, pack()) {
		t.Error("two packages of the same chart differ")
	}
}

func TestLockedComponent(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("A", 86) + "=="
	lock := `{"packages": {"node_modules/@deno/x": {"version": "2", "integrity": "sha512-` + sum + `", "license": "MIT"}, "node_modules/weak": {"version": "1", "integrity": "sha1-AAAA"}}}`
	c, err := lockedComponent([]byte(lock), "@deno/x")
	if err != nil || c.PURL != "pkg:npm/%40deno/x@2" || c.Hashes[0].Content != strings.Repeat("00", 64) || c.Licenses[0].License.ID != "MIT" {
		t.Errorf("got %+v, %v", c, err)
	}
	for _, name := range []string{"weak", "missing"} {
		if _, err := lockedComponent([]byte(lock), name); err == nil {
			t.Errorf("%s: a package without a hash was accepted", name)
		}
	}
}
