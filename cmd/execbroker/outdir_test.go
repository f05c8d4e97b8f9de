package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLocalName(t *testing.T) {
	for in, want := range map[string]string{
		"report.txt":                    "report.txt",
		"a/b/c.csv":                     "a/b/c.csv",
		"渐/é😀.txt":                      "渐/é😀.txt",
		"../../etc/passwd":              "_/_/etc/passwd",
		"/etc/passwd":                   "etc/passwd",
		"a//./b":                        "a/b",
		"":                              "unnamed",
		"...":                           "_",
		".bashrc":                       "_.bashrc",
		".git/hooks/pre-commit":         "_.git/hooks/pre-commit",
		"-rf":                           "_-rf",
		`..\..\windows`:                 "_.._.._windows",
		"C:/x":                          "C_/x",
		"a\x00b\nc\x1b[2J":              "a_b_c_[2J",
		"\u202etxt.exe":                 "_txt.exe",
		"bad\xffname":                   "bad_name",
		"trailing. . ":                  "trailing",
		"con":                           "_con",
		"NUL.txt":                       "_NUL.txt",
		"com1":                          "_com1",
		"COM¹.log":                      "_COM¹.log",
		"comet":                         "comet",
		strings.Repeat("x", 300) + ".x": strings.Repeat("x", 118) + ".x",
		strings.Repeat("渐", 100):        strings.Repeat("渐", 40),
		strings.Repeat("d/", 30) + "f":  strings.TrimSuffix(strings.Repeat("d/", 16), "/"),
	} {
		if got := localName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func FuzzLocalName(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "/etc", `C:\x`, ".git/config", "NUL", "\xff\x00", strings.Repeat("x", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := localName(s)
		if !filepath.IsLocal(got) || !fs.ValidPath(got) || !utf8.ValidString(got) || strings.ContainsAny(got, "\\:\x00") {
			t.Errorf("%q: got %q", s, got)
		}
		for e := range strings.SplitSeq(got, "/") {
			if e[0] == '.' || e[0] == '-' || len(e) > maxElement+1 || plain(e) != e {
				t.Errorf("%q: got %q", s, got)
			}
		}
	})
}

func newOutDir(t *testing.T, path string) *outDir {
	t.Helper()
	d, err := openOutDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

func TestOutDirUnique(t *testing.T) {
	dir := t.TempDir()
	d := newOutDir(t, dir)
	for _, name := range []string{"a.txt", "A.txt", "a.txt", "../a.txt"} {
		if _, err := d.save(name, "text/plain", strings.NewReader(name)); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{"a.txt": "a.txt", "A-2.txt": "A.txt", "a-3.txt": "a.txt", "_/a.txt": "../a.txt"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestOutDirReplacesFilesOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("making links needs a privilege there")
		return
	}
	dir, outside := t.TempDir(), t.TempDir()
	secret := write(t, outside, "secret", "untouched")
	write(t, dir, "old.txt", "old")
	inside := write(t, dir, "inside", "untouched")
	for name, target := range map[string]string{"link": secret, "linkdir": outside, "inner": "inside", "dangling": filepath.Join(outside, "made")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := newOutDir(t, dir)
	for name, ok := range map[string]bool{
		"old.txt": true, "new/deep.txt": true,
		"link": false, "linkdir/secret": false, "linkdir/new": false, "inner": false, "dangling": false, "directory": false, "old.txt/below": false,
	} {
		if _, err := d.save(name, "text/plain", strings.NewReader("new")); (err == nil) != ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, file := range []string{secret, inside} {
		if got, err := os.ReadFile(file); err != nil || string(got) != "untouched" {
			t.Errorf("%s: got %q, %v", file, got, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "old.txt")); err != nil || string(got) != "new" {
		t.Errorf("got %q, %v", got, err)
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("got %v outside", left)
	}
	if parts, _ := filepath.Glob(filepath.Join(dir, ".execbroker-*")); len(parts) > 0 {
		t.Errorf("got %v", parts)
	}
}

func TestParseUploads(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "data.csv", "x")
	cases := map[string]upload{
		file: {file, "data.csv"}, file + ":x/y.csv": {file, "x/y.csv"}, file + ":/abs": {file, "/abs"}, file + ":a:b": {file, "a:b"}, file + ":": {file, "data.csv"},
	}
	if runtime.GOOS != "windows" {
		odd := write(t, dir, "12:30.csv", "x")
		cases[odd] = upload{odd, "12:30.csv"}
	}
	for arg, want := range cases {
		if got, err := parseUploads([]string{arg}); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %v, %v, want %v", arg, got, err, want)
		}
	}
}

func TestLanguageOf(t *testing.T) {
	for file, want := range map[string]string{"a.py": "python", "A.PY": "python", "dir.js/x.mjs": "javascript", "x.cjs": "javascript", "Makefile": ""} {
		if got, err := languageOf(file); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", file, got, err)
		}
	}
	if _, err := languageOf("x.rb"); err == nil {
		t.Error("x.rb: no error")
	}
}
