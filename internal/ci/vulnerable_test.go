package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVulnerabilities runs govulncheck over databases in a file system: one has an entry in the
// form of GO-2022-0969, for all versions of Go, one cannot be reached, and one is not there.
func TestVulnerabilities(t *testing.T) {
	tool, err := installVulncheck(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	database := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":      `{"modified": "2023-04-03T15:57:51Z"}`,
		"index/modules.json": `[{"path": "stdlib", "vulns": [{"id": "GO-2022-0969", "modified": "2023-04-03T15:57:51Z"}]}]`,
		"ID/GO-2022-0969.json": `{"schema_version": "1.3.1", "id": "GO-2022-0969", "modified": "2023-04-03T15:57:51Z", "published": "2022-09-12T20:23:06Z",
			"details": "connections can hang", "affected": [{"package": {"name": "stdlib", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
			"ecosystem_specific": {"imports": [{"path": "net/http", "symbols": ["ListenAndServe"]}]}}]}`,
	} {
		file := filepath.Join(database, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := "http://" + l.Addr().String()
	l.Close()
	calls := "package m\n\nimport \"net/http\"\n\nfunc F() error { return http.ListenAndServe(\"\", nil) }\n"
	for _, c := range []struct {
		name, code, database string
		ci                   bool
		want                 tally
		says                 string
	}{
		{"called", calls, "file://" + database, false, tally{failed: 1}, "GO-2022-0969"},
		{"not-called", strings.Replace(calls, `ListenAndServe("", nil)`, "ErrServerClosed", 1), "file://" + database, false, tally{passed: 1}, "ok    govulncheck"},
		{"does-not-compile", "package m\n\nfunc F() error { return 1 }\n", "file://" + database, false, tally{failed: 1}, "FAIL  govulncheck"},
		{"away", calls, away, false, tally{skipped: 1}, "NOBODY HAS LOOKED"},
		{"away-in-ci", calls, away, true, tally{failed: 1}, "nothing may be skipped in CI"},
		{"not-there", calls, "file://" + filepath.Join(database, "none"), false, tally{skipped: 1}, "NOBODY HAS LOOKED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			got, err := vulncheck(t.Context(), &out, tool, module(t, map[string]string{"m.go": c.code}), c.database, c.ci)
			if err != nil || got != c.want || !strings.Contains(out.String(), c.says) {
				t.Errorf("got %v, %v and\n%s\nwant %v and %q", got, err, &out, c.want, c.says)
			}
		})
	}
}
