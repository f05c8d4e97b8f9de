package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// repository is where links to files that are no pages lead.
const repository = "https://github.com/execbroker/execbroker"

// run builds the version, exchanges it for one that was there, and lists the versions again.
func (b build) run(ctx context.Context) error {
	if err := b.check(); err != nil {
		return err
	}
	for _, dir := range []*string{&b.root, &b.work, &b.out} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		*dir = abs
	}
	if err := os.MkdirAll(b.work, 0o755); err != nil {
		return err
	}
	if err := b.stage(); err != nil {
		return err
	}
	if err := b.packages(ctx); err != nil {
		return err
	}
	fresh := filepath.Join(b.work, "dist")
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := b.do(ctx, "node", "node_modules/vitepress/bin/vitepress.js", "build", "."); err != nil {
		return err
	}
	if err := externalScripts(fresh, b.base+b.version+"/"); err != nil {
		return err
	}
	final := filepath.Join(b.out, b.version)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.CopyFS(final, os.DirFS(fresh)); err != nil {
		return err
	}
	return listVersions(b.out)
}

// packages installs the generator at the versions of the lock file, unless it is there.
func (b build) packages(ctx context.Context) error {
	from := filepath.Join(b.root, "internal", "ci", "site")
	lock, err := os.ReadFile(filepath.Join(from, "package-lock.json"))
	if err != nil {
		return err
	}
	done := filepath.Join(b.work, "node_modules", ".installed")
	sum := fmt.Appendf(nil, "%x", sha256.Sum256(lock))
	if have, err := os.ReadFile(done); err == nil && bytes.Equal(have, sum) {
		return nil
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.work, name), text, 0o644); err != nil {
			return err
		}
	}
	if err := b.do(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--prefer-offline"); err != nil {
		return err
	}
	return os.WriteFile(done, sum, 0o644)
}

// do runs a program in the work directory. What it says is shown only if it fails.
func (b build) do(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// settings are what the configuration of the generator reads.
type settings struct {
	Root       string            `json:"root"` // of the repository
	Out        string            `json:"out"`
	Base       string            `json:"base"`
	RootURL    string            `json:"root_url"` // of all versions
	Version    string            `json:"version"`
	Repository string            `json:"repository"`
	Ref        string            `json:"ref"`
	Pages      map[string]string `json:"pages"`   // files of the site, by those of the repository
	Sources    map[string]string `json:"sources"` // the other way round
	Sidebar    []item            `json:"sidebar"`
}

// stage writes what the generator reads.
func (b build) stage() error {
	pages, vitepress := filepath.Join(b.work, "pages"), filepath.Join(b.work, ".vitepress")
	if err := errors.Join(os.RemoveAll(pages), os.RemoveAll(vitepress)); err != nil {
		return err
	}
	if err := os.CopyFS(vitepress, os.DirFS(filepath.Join(b.root, "internal", "ci", "site", "vitepress"))); err != nil {
		return err
	}
	d, err := readDocs(os.DirFS(b.root))
	if err != nil {
		return err
	}
	reference, err := b.reference()
	if err != nil {
		return err
	}
	set := settings{
		Root: b.root, Out: filepath.Join(b.work, "dist"), Base: b.base + b.version + "/", RootURL: b.base, Version: b.version,
		Repository: repository, Ref: b.ref(), Pages: d.pages, Sources: map[string]string{}, Sidebar: append(d.sidebar, reference.sidebar),
	}
	write := func(name string, text []byte) error {
		file := filepath.Join(pages, filepath.FromSlash(name))
		return cmp.Or(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644))
	}
	for source, page := range d.pages {
		text, err := d.text(source)
		if err != nil {
			return err
		}
		if err := write(page, text); err != nil {
			return err
		}
		set.Sources[page] = source
	}
	for page, text := range reference.pages {
		if err := write(page, []byte(text)); err != nil {
			return err
		}
	}
	data, err := json.Marshal(set)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(vitepress, "site.json"), data, 0o644)
}

// ref is the commit or branch that links to sources name.
func (b build) ref() string {
	if b.version == "main" {
		return b.version
	}
	return b.commit
}

// contentPolicy is what pages may load: files of their own origin. Pictures may also be part of a
// style sheet.
const contentPolicy = `default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'`

// inlineStyles are those of the generator's theme, which the style sheet and scripts of the site
// set, too.
var inlineStyles = strings.NewReplacer(` style="position:relative;"`, "", ` style="--vp-vh:0px;"`, "")

var inlineScript = regexp.MustCompile(`(?s)<script( id="[\w-]+")?>(.*?)</script>`)

// externalScripts moves the scripts of pages to files, so that the policy, which it writes into
// each page, forbids scripts and styles in pages. It holds at every host, whatever headers that
// sends.
func externalScripts(dir, base string) error {
	return eachPage(dir, func(file string, text []byte) error {
		var failed error
		text = inlineScript.ReplaceAllFunc(text, func(script []byte) []byte {
			m := inlineScript.FindSubmatch(script)
			name := fmt.Sprintf("script-%.12x.js", sha256.Sum256(m[2]))
			failed = cmp.Or(failed, os.WriteFile(filepath.Join(dir, name), m[2], 0o644))
			return fmt.Appendf(nil, `<script%s src="%s"></script>`, m[1], base+name)
		})
		if failed != nil {
			return failed
		}
		text = []byte(inlineStyles.Replace(string(text)))
		head := []byte("<head>\n")
		if !bytes.Contains(text, head) {
			return fmt.Errorf("%s: no head", file)
		}
		text = bytes.Replace(text, head, fmt.Appendf(head[:len(head):len(head)], "    <meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n", contentPolicy), 1)
		return os.WriteFile(file, text, 0o644)
	})
}
