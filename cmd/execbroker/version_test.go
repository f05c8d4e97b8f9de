package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	contains(t, run(t, exitOK, "version").out.String(), "execbroker ", "go1.")
	var v struct{ Types []string }
	decode(t, run(t, exitOK, "version", "--json").out.Bytes(), &v)
	if !slices.Equal(v.Types, []string{"docker", "fake", "strict"}) {
		t.Errorf("got %+v", v)
	}
	contains(t, run(t, exitOK).out.String(), "Usage:", "run")
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	stamp := func(version string, settings ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return info
	}
	const commit = "b3602902f59cdd6f9f0a8b3a9ea01b4bd0bf9ea7"
	const pseudo = "v0.0.0-20261127085512-b3602902f59c"
	for name, c := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"nothing":       {nil, `{"version":"(devel)"}`},
		"go-run":        {stamp("(devel)"), `{"version":"(devel)"}`},
		"proxy":         {stamp("v0.1.0"), `{"version":"v0.1.0"}`},
		"proxy-commit":  {stamp(pseudo), `{"version":"` + pseudo + `","commit":"b3602902f59c","date":"2026-11-27T08:55:12Z"}`},
		"tagged-clone":  {stamp("v0.1.0", "vcs.revision", commit, "vcs.time", "2026-11-27T08:55:12Z", "vcs.modified", "false"), `{"version":"v0.1.0","commit":"` + commit + `","date":"2026-11-27T08:55:12Z"}`},
		"changed-clone": {stamp(pseudo+"+dirty", "vcs.revision", commit, "vcs.time", "2026-11-27T08:55:12Z", "vcs.modified", "true"), `{"version":"` + pseudo + `+dirty","commit":"` + commit + `","date":"2026-11-27T08:55:12Z","modified":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(originOf(c.info))
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// Each command has a page, and two runs write the same.
func TestMan(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "man1"), t.TempDir()
	run(t, exitOK, "man", first)
	run(t, exitOK, "man", second)
	pages, err := filepath.Glob(filepath.Join(first, "*"))
	if err != nil || len(pages) < 30 {
		t.Fatalf("got %d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text := read(t, page)
		if name := strings.TrimSuffix(filepath.Base(page), ".1"); !strings.Contains(text, ".SH NAME\n"+name+" - ") {
			t.Errorf("%s does not say the name and the purpose:\n%.200s", page, text)
		}
		if got := read(t, filepath.Join(second, filepath.Base(page))); got != text {
			t.Errorf("%s differs from run to run", filepath.Base(page))
		}
	}
	contains(t, read(t, filepath.Join(first, "execbroker-run.1")), "--file", ".SH EXAMPLE")
	file := write(t, t.TempDir(), "f", "")
	run(t, exitUsage, "man", filepath.Join(file, "man1"))
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
