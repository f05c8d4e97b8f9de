package release

import (
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// files are what packages bring besides the program: the service, its configuration, the scripts of
// the package.
//
//go:embed files
var files embed.FS

// places are where packages put completions. RPM's differ for zsh.
var places = map[string]map[string]string{
	"deb": {"bash": "/usr/share/bash-completion/completions/execbroker", "zsh": "/usr/share/zsh/vendor-completions/_execbroker", "fish": "/usr/share/fish/vendor_completions.d/execbroker.fish"},
	"rpm": {"bash": "/usr/share/bash-completion/completions/execbroker", "zsh": "/usr/share/zsh/site-functions/_execbroker", "fish": "/usr/share/fish/vendor_completions.d/execbroker.fish"},
}

// depends are the names of the libraries that Deno is linked with. A minimal system has them.
var depends = map[string][]string{"deb": {"libc6 (>= 2.27)", "libgcc-s1"}, "rpm": {"glibc >= 2.27", "libgcc"}}

// content is a file of a package in the configuration of nfpm.
type content struct {
	Source string   `json:"src,omitempty"`
	Place  string   `json:"dst"`
	Type   string   `json:"type,omitempty"`
	Info   fileInfo `json:"file_info"`
}

type fileInfo struct {
	Mode  fs.FileMode `json:"mode"`
	Owner string      `json:"owner"`
	Group string      `json:"group"`
}

// pack makes a package of a format for an architecture. nfpm reads its configuration as YAML, of
// which JSON is a part.
func (m *maker) pack(ctx context.Context, format, arch string) error {
	dir := filepath.Join(m.work, format, arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	contents, err := m.contents(dir, format, arch)
	if err != nil {
		return err
	}
	config := map[string]any{
		"name": "execbroker", "platform": "linux", "arch": arch, "version": "v" + m.version, "version_schema": "semver",
		"section": "utils", "priority": "optional", "license": "Apache-2.0", "homepage": repository,
		"maintainer":  "The authors of execbroker <" + repository + ">",
		"description": "Run untrusted code in sandboxes\n execbroker runs code that a language model has written, or anybody whom you do\n not trust, in sandboxes on this machine or of a provider. This package brings\n Pyodide, so that Python and JavaScript run without anything else.",
		"mtime":       m.source.date.Format(time.RFC3339),
		"contents":    contents,
		"depends":     depends[format],
		"recommends":  []string{"bubblewrap"},
		"scripts":     map[string]string{"postinstall": filepath.Join(dir, "postinstall.sh"), "preremove": filepath.Join(dir, "preremove.sh"), "postremove": filepath.Join(dir, "postremove.sh")},
		"deb":         map[string]any{"compression": "zstd"},
		"rpm":         map[string]any{"compression": "zstd", "buildhost": "localhost", "group": "Unspecified", "summary": "Run untrusted code in sandboxes"},
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "nfpm.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	_, err = m.run(ctx, nil, "go", "run", nfpm, "package", "--config", file, "--packager", format, "--target", m.file("linux/"+arch, "."+format))
	return err
}

// contents returns the files of a package. Those that are made for it are put into dir.
func (m *maker) contents(dir, format, arch string) ([]content, error) {
	var all []content
	add := func(from, to, typ string, mode fs.FileMode) {
		all = append(all, content{from, to, typ, fileInfo{mode, "root", "root"}})
	}
	embedded, err := fs.ReadDir(files, "files")
	if err != nil {
		return nil, err
	}
	for _, e := range embedded {
		text, err := files.ReadFile(path.Join("files", e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), text, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	add(m.program("linux/"+arch), "/usr/bin/execbroker", "", 0o755)
	add(filepath.Join(dir, "execbroker.service"), "/usr/lib/systemd/system/execbroker.service", "", 0o644)
	add(filepath.Join(dir, "execbroker.yaml"), "/etc/execbroker/execbroker.yaml", "config|noreplace", 0o644)
	// Keys of providers may stand there.
	add(filepath.Join(dir, "execbroker.env"), "/etc/execbroker/execbroker.env", "config|noreplace", 0o600)
	add(filepath.Join(dir, "copyright"), "/usr/share/doc/execbroker/copyright", "", 0o644)
	for shell, to := range places[format] {
		add(filepath.Join(m.work, "completions", completions[shell]), to, "", 0o644)
	}
	pages, err := filepath.Glob(filepath.Join(m.work, "man", "*.1"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		if text, err = gz(text); err != nil {
			return nil, err
		}
		name := filepath.Base(page) + ".gz"
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return nil, err
		}
		add(filepath.Join(dir, name), "/usr/share/man/man1/"+name, "", 0o644)
	}
	err = filepath.WalkDir(m.runtimeDir(arch), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(m.runtimeDir(arch), name)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		add(name, "/"+filepath.ToSlash(rel), "", info.Mode().Perm())
		return nil
	})
	slices.SortFunc(all, func(a, b content) int { return strings.Compare(a.Place, b.Place) })
	return all, err
}
