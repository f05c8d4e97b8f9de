package docker

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/npm"
	"github.com/execbroker/execbroker/internal/requirement"
)

// Packages says what sessions may install and where it comes from. The zero value means that they may install nothing, and that those of
// templates come from the index that the pip of the image uses.
//
// A session needs no network for it: a container of the same image, with network and without anything of a user, fetches wheels or
// packages of npm once, and what it made of them is kept in the cache directory.
type Packages struct {
	// Allow lists what may be asked for, by language: "numpy", "pandas>=2,<3", "uvicorn[standard]" for Python, "lodash", "@scope/name@^2"
	// for JavaScript, or "*" for everything that there is. What they depend on comes along. Versions bound all that is installed. A
	// language that has no list declares no packages.
	Allow map[executor.Language][]string `json:"allow,omitempty"`
	// Requirements is a file of pip's with further lines for Python: names with versions, and comments.
	Requirements string `json:"requirements,omitempty"`

	// IndexURL is the address of an index (PEP 503), FindLinks are pages with links to wheels. Empty: what the pip of the image uses.
	IndexURL  string   `json:"index_url,omitempty"`
	FindLinks []string `json:"find_links,omitempty"`
	// Registry is the address of a registry of npm packages, for JavaScript. It has no default: the image need not have an npm to ask.
	Registry string `json:"registry,omitempty"`
	// Insecure allows http, by which anybody on the way can exchange packages.
	Insecure bool `json:"insecure,omitempty"`
	// Wheels is a directory with wheels. Without IndexURL and FindLinks nothing else is looked at, and nothing has a network.
	Wheels string `json:"wheels,omitempty"`

	// Network is the engine's network for fetching. Default: "bridge".
	Network string `json:"network,omitempty"`
	// Size is the most that the packages of a session may take for each language that can have some, unpacked. They are in memory, which
	// grows by as much. Default: 256 MiB.
	Size Size `json:"size,omitempty"`
}

const (
	packagesSize    = 256 << 20
	maxRequirements = 1 << 20 // of the file
	everything      = "*"
)

// packagesDirs are where sessions find packages. Node looks for modules in directories of that name on the way up from a file, so what
// is in the root is found by require and import, in cells and in the files of a project.
var packagesDirs = map[executor.Language]string{executor.Python: "/opt/packages", executor.JavaScript: "/node_modules"}

// installs returns the languages of which anything can ever be installed.
func (c *Config) installs() []executor.Language {
	var ls []executor.Language
	for _, l := range slices.Sorted(maps.Keys(packagesDirs)) {
		used := len(c.Packages.Allow[l]) > 0 || l == executor.Python && c.Packages.Requirements != ""
		for _, t := range c.Templates {
			used = used || len(t.Packages[l]) > 0
		}
		if used {
			ls = append(ls, l)
		}
	}
	return ls
}

// packagesSize returns how much room a session has for the packages of a language that can be installed.
func (c *Config) packagesSize() int64 {
	if c.Packages.Size == 0 {
		return packagesSize
	}
	return pages(int64(c.Packages.Size))
}

// checkPackages reports every mistake in what says that packages are installed, but those in the file of requirements.
func (c *Config) checkPackages() error {
	var errs []error
	for _, l := range c.installs() {
		switch {
		case !slices.Contains(c.languages(), l):
			errs = append(errs, driver.At("packages", fmt.Errorf("there are some of %s, which is not one of the languages", l)))
		case l == executor.JavaScript && c.Packages.Registry == "":
			errs = append(errs, driver.At("packages.registry", errors.New("is needed for packages of javascript: the address of a registry of npm packages")))
		}
	}
	return errors.Join(append(errs, driver.At("packages", c.Packages.check()))...)
}

// check reports every mistake in p but those in the file of requirements.
func (p *Packages) check() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	for _, l := range slices.Sorted(maps.Keys(p.Allow)) {
		if packagesDirs[l] == "" {
			at("allow."+string(l), errNoPackages)
			continue
		}
		for i, name := range p.Allow[l] {
			if name != everything {
				at(fmt.Sprintf("allow.%s[%d]", l, i), checkRequirement(l, name))
			}
		}
	}
	for path, address := range map[string]string{"index_url": p.IndexURL, "registry": p.Registry} {
		if address != "" {
			at(path, p.checkURL(address))
		}
	}
	for i, u := range p.FindLinks {
		at(fmt.Sprintf("find_links[%d]", i), p.checkURL(u))
	}
	for path, name := range map[string]string{"wheels": p.Wheels, "requirements": p.Requirements} {
		if name != "" && !filepath.IsAbs(name) {
			at(path, errors.New("not an absolute path"))
		}
	}
	if p.Size < 0 {
		at("size", errors.New("negative"))
	}
	at("network", checkNetwork(p.Network))
	return errors.Join(errs...)
}

// checkRequirement reports what is wrong with a requirement of a language.
func checkRequirement(l executor.Language, text string) (err error) {
	if l == executor.JavaScript {
		_, err = npm.Parse(text)
	} else {
		_, err = requirement.Parse(text)
	}
	return err
}

func (p *Packages) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http", strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' }):
		return errors.New("not an address such as https://example.org/simple")
	case u.User != nil:
		return errors.New("a configuration contains no password; pip in the image can have one (/etc/pip.conf)")
	case u.Scheme == "http" && !p.Insecure:
		return errors.New("http lets anybody on the way exchange packages; use https, or set insecure")
	}
	return nil
}

// checkPackages reports every mistake in the packages of t.
func (t *Template) checkPackages() error {
	var errs []error
	for _, l := range slices.Sorted(maps.Keys(t.Packages)) {
		if packagesDirs[l] == "" {
			errs = append(errs, driver.At(string(l), errNoPackages))
			continue
		}
		for i, name := range t.Packages[l] {
			errs = append(errs, driver.At(fmt.Sprintf("%s[%d]", l, i), checkRequirement(l, name)))
		}
	}
	return errors.Join(errs...)
}

var errNoPackages = errors.New("packages can be of python and of javascript only")

// offline reports whether all packages are on this machine.
func (p *Packages) offline() bool { return p.Wheels != "" && p.IndexURL == "" && len(p.FindLinks) == 0 }

// allowed is what may be installed.
type allowed struct {
	any   bool                                 // of Python
	names map[string][]requirement.Requirement // by name
	js    allowedJS
}

// allowed reads the lists.
func (p *Packages) allowed() (allowed, error) {
	a := allowed{names: map[string][]requirement.Requirement{}, js: p.allowedJS()}
	lines := slices.Clone(p.Allow[executor.Python])
	if p.Requirements != "" {
		more, err := readRequirements(p.Requirements)
		if err != nil {
			return a, &driver.FieldError{Path: "packages.requirements", Err: err}
		}
		lines = append(lines, more...)
	}
	for _, l := range lines {
		if l == everything {
			a.any = true
			continue
		}
		r, err := requirement.Parse(l)
		if err != nil {
			return a, &driver.FieldError{Path: "packages.requirements", Err: err}
		}
		a.names[r.Name] = append(a.names[r.Name], r)
	}
	return a, nil
}

// readRequirements returns the lines of a file without comments.
func readRequirements(name string) ([]string, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxRequirements {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", name, st.Size(), maxRequirements)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var lines []string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// none reports whether nothing of a language may be installed.
func (a allowed) none(l executor.Language) bool {
	if l == executor.JavaScript {
		return !a.js.any && len(a.js.list) == 0
	}
	return !a.any && len(a.names) == 0
}

// constraints are what the lists say of versions.
func (a allowed) constraints() []string {
	var cs []string
	for _, name := range slices.Sorted(maps.Keys(a.names)) {
		for _, r := range a.names[name] {
			if r.Specifier != "" {
				cs = append(cs, r.Name+r.Specifier)
			}
		}
	}
	return cs
}

// parse reads what somebody asks for and refuses what is not on the lists.
func (a allowed) parse(names []string) ([]requirement.Requirement, error) {
	rs, err := parseAll(names)
	if err != nil {
		return nil, err
	}
	for _, r := range rs {
		if err := a.admit(r); err != nil {
			return nil, driver.Fail(executor.ErrDenied, executor.RanNo, err)
		}
	}
	return rs, nil
}

// parseAll reads requirements and puts them into one order.
func parseAll(names []string) ([]requirement.Requirement, error) {
	return inOrder(names, requirement.Parse)
}

// inOrder reads requirements of either language, once each and in one order.
func inOrder[R fmt.Stringer](names []string, parse func(string) (R, error)) ([]R, error) {
	var rs []R
	for _, n := range names {
		r, err := parse(n)
		if err != nil {
			return nil, driver.Fail(executor.ErrInvalid, executor.RanNo, err)
		}
		rs = append(rs, r)
	}
	slices.SortFunc(rs, func(a, b R) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(rs, func(a, b R) bool { return a.String() == b.String() }), nil
}

// admit returns why r may not be installed.
func (a allowed) admit(r requirement.Requirement) error {
	lines, listed := a.names[r.Name]
	if !listed && !a.any {
		return fmt.Errorf("package %s is not on the list of this backend (packages.allow)", r.Name)
	}
	if a.any {
		return nil
	}
	for _, e := range r.Extras {
		if !slices.ContainsFunc(lines, func(l requirement.Requirement) bool { return slices.Contains(l.Extras, e) }) {
			return fmt.Errorf("extra %s of package %s is not on the list of this backend (packages.allow)", e, r.Name)
		}
	}
	if v, exact := strings.CutPrefix(r.Specifier, "=="); exact && !strings.ContainsAny(v, ",*") {
		for _, l := range lines {
			if !l.Allows(v) {
				return fmt.Errorf("package %s: version %s is not allowed by this backend, which wants %s (packages.allow)", r.Name, v, l.Specifier)
			}
		}
	}
	return nil
}
