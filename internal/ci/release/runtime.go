package release

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/pyodide"
)

// npmNames are the words of npm for architectures.
var npmNames = map[string]string{"amd64": "x64", "arm64": "arm64"}

// runtimeParts are the files of each npm package that the program needs, and their licences, as
// paths. A key is a directory in node_modules; ARCH stands for the word of npm.
var runtimeParts = map[string][]string{
	"@deno/linux-ARCH-glibc": {"package.json", "deno"},
	"deno":                   {"package.json", "LICENSE"},
	"pyodide":                {"package.json", "README.md", "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"},
	"acorn":                  {"package.json", "LICENSE", "dist/acorn.mjs"},
}

// runtimeDir is where the runtime for an architecture is before it is packed, as if this were the
// root of a file system.
func (m *maker) runtimeDir(arch string) string { return filepath.Join(m.work, "runtime", arch) }

// runtime installs the Pyodide runtime for an architecture, of the versions in the lock file, whose
// hashes npm checks.
func (m *maker) runtime(ctx context.Context, arch string) error {
	to, npm, err := pyodide.Packaging("linux", arch)
	if err != nil {
		return err
	}
	dir := filepath.Join(m.work, "npm", arch)
	if err := os.CopyFS(dir, npm); err != nil {
		return err
	}
	if _, err := runIn(ctx, dir, nil, "npm", "ci", "--ignore-scripts", "--include=optional", "--no-audit", "--no-fund", "--no-progress",
		"--loglevel=error", "--os=linux", "--cpu="+npmNames[arch], "--libc=glibc"); err != nil {
		return err
	}
	lock, err := fs.ReadFile(npm, "package-lock.json")
	if err != nil {
		return err
	}
	var components []component
	for name, files := range runtimeParts {
		name = strings.ReplaceAll(name, "ARCH", npmNames[arch])
		modules := filepath.Join(dir, "node_modules", filepath.FromSlash(name))
		for _, file := range files {
			put := filepath.Join(m.runtimeDir(arch), "usr", filepath.FromSlash(path.Join(to, "node_modules", name, file)))
			if err := os.MkdirAll(filepath.Dir(put), 0o755); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(modules, filepath.FromSlash(file)), put); err != nil {
				return err
			}
			mode := fs.FileMode(0o644)
			if file == "deno" {
				mode = 0o755
			}
			if err := os.Chmod(put, mode); err != nil {
				return err
			}
		}
		c, err := lockedComponent(lock, name)
		if err != nil {
			return err
		}
		components = append(components, c)
		m.from = append(m.from, material{uri: c.PURL, digest: map[string]string{"sha512": c.Hashes[0].Content}})
	}
	slices.SortFunc(components, func(a, b component) int { return strings.Compare(a.PURL, b.PURL) })
	return m.components(arch, components)
}

// component is one of a list in the form of CycloneDX.
type component struct {
	Type     string          `json:"type"`
	Ref      string          `json:"bom-ref"`
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Hashes   []componentHash `json:"hashes"`
	Licenses []license       `json:"licenses,omitempty"`
	PURL     string          `json:"purl"`
}

type componentHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

// lockedComponent describes a package by a lock file of npm.
func lockedComponent(lock []byte, name string) (component, error) {
	var l struct {
		Packages map[string]struct{ Version, Integrity, License string }
	}
	if err := json.Unmarshal(lock, &l); err != nil {
		return component{}, fmt.Errorf("package-lock.json: %w", err)
	}
	p := l.Packages["node_modules/"+name]
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Integrity, "sha512-"))
	if err != nil || len(sum) != 64 {
		return component{}, fmt.Errorf("package-lock.json: %s: want a version and an integrity of sha512, got %q and %q", name, p.Version, p.Integrity)
	}
	purl := "pkg:npm/" + strings.ReplaceAll(name, "@", "%40") + "@" + p.Version
	c := component{Type: "library", Ref: purl, Name: name, Version: p.Version, PURL: purl, Hashes: []componentHash{{"SHA-512", hex.EncodeToString(sum)}}}
	if p.License != "" {
		var l license
		l.License.ID = p.License
		c.Licenses = []license{l}
	}
	return c, nil
}

// components writes what the runtime for an architecture consists of.
func (m *maker) components(arch string, all []component) error {
	type tool struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	var bom struct {
		Format   string `json:"bomFormat"`
		Spec     string `json:"specVersion"`
		Version  int    `json:"version"`
		Metadata struct {
			Component tool `json:"component"`
		} `json:"metadata"`
		Components []component `json:"components"`
	}
	bom.Format, bom.Spec, bom.Version, bom.Components = "CycloneDX", "1.6", 1, all
	bom.Metadata.Component = tool{"application", "execbroker-pyodide-runtime", m.version}
	text, err := json.MarshalIndent(bom, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.out, fmt.Sprintf("runtime_%s_linux_%s.cdx.json", m.version, arch)), append(text, '\n'), 0o644)
}

// modules writes the list of the modules that are linked into the program of a target, from what
// the Go command has written into it.
func (m *maker) modules(ctx context.Context, target string) error {
	_, err := m.run(ctx, nil, "go", "run", cyclonedx, "bin", "-json", "-noserial", "-notimestamp", "-version", "v"+m.version,
		"-output", m.file(target, ".cdx.json"), m.program(target))
	return err
}
