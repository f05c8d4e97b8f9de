// Package packages installs packages in sandboxes, for adapters of containers and machines.
//
// Three parts do that, and none of them trusts the others: this program, which knows what may be
// requested and stores what was fetched; a builder, a process without data of users, which
// downloads packages without running any of their code; and a placer, a root process in a sandbox,
// which installs them where code cannot change them. Adapters start the processes.
package packages

import (
	"bufio"
	"bytes"
	"cmp"
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

// Sources says which packages may be installed and where they come from.
type Sources driver.Packages

const defaultSize = 256 << 20

// Bytes returns the largest size of one installation in bytes.
func (s *Sources) Bytes() int64 { return cmp.Or(int64(s.Size), defaultSize) }

const (
	maxRequirements = 1 << 20 // bytes of the file of requirements
	everything      = "*"
)

// Dirs are the directories in which sessions find packages. Node looks for modules in directories
// of that name in all directories above a file. So require and import find modules in the root
// directory, in cells and in the files of a project.
var Dirs = map[executor.Language]string{executor.Python: "/opt/packages", executor.JavaScript: "/node_modules"}

// Env returns the environment of code in a sandbox with Python packages. The variable is for Python
// processes that the code starts.
func Env(env map[string]string) map[string]string {
	const name = "PYTHONPATH"
	if _, ok := env[name]; ok {
		return env
	}
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[name] = Dirs[executor.Python]
	return env
}

// Languages returns the languages for which packages can be installed, including those of presets.
func (s *Sources) Languages(presets ...map[executor.Language][]string) []executor.Language {
	var ls []executor.Language
	for _, l := range slices.Sorted(maps.Keys(Dirs)) {
		used := len(s.Allow[l]) > 0 || l == executor.Python && s.Requirements != ""
		for _, p := range presets {
			used = used || len(p[l]) > 0
		}
		if used {
			ls = append(ls, l)
		}
	}
	return ls
}

// Validate returns all errors in s and in its use, with their paths below "packages", except those
// in the file of requirements. known are the languages of sandboxes, presets what templates have.
func (s *Sources) Validate(known []executor.Language, presets ...map[executor.Language][]string) error {
	return errors.Join(s.checkLanguages(s.Languages(presets...), known), driver.At("packages", s.Check()))
}

// checkLanguages returns an error for each used language that cannot have packages.
func (s *Sources) checkLanguages(used, known []executor.Language) error {
	var errs []error
	for _, l := range used {
		switch {
		case !slices.Contains(known, l):
			errs = append(errs, driver.At("packages", fmt.Errorf("there are some of %s, which is not one of the languages", l)))
		case l == executor.JavaScript && s.Registry == "":
			errs = append(errs, driver.At("packages.registry", errors.New("is needed for packages of javascript: the address of a registry of npm packages")))
		}
	}
	return errors.Join(errs...)
}

// Check returns all errors in s, except those in the file of requirements.
func (s *Sources) Check() error {
	var errs []error
	at := func(path string, err error) { errs = append(errs, driver.At(path, err)) }
	for _, l := range slices.Sorted(maps.Keys(s.Allow)) {
		if Dirs[l] == "" {
			at("allow."+string(l), errNoPackages)
			continue
		}
		for i, name := range s.Allow[l] {
			if name != everything {
				at(fmt.Sprintf("allow.%s[%d]", l, i), checkRequirement(l, name))
			}
		}
	}
	for _, u := range []struct{ path, address string }{{"index_url", s.IndexURL}, {"registry", s.Registry}} {
		if u.address != "" {
			at(u.path, s.checkURL(u.address))
		}
	}
	for i, u := range s.FindLinks {
		at(fmt.Sprintf("find_links[%d]", i), s.checkURL(u))
	}
	for _, f := range []struct{ path, name string }{{"wheels", s.Wheels}, {"requirements", s.Requirements}} {
		if f.name != "" && !filepath.IsAbs(f.name) {
			at(f.path, errors.New("not an absolute path"))
		}
	}
	if s.Size < 0 {
		at("size", errors.New("negative"))
	}
	return errors.Join(errs...)
}

// CheckPreset returns all errors in the packages that a configuration gives to sessions.
func CheckPreset(names map[executor.Language][]string) error {
	var errs []error
	for _, l := range slices.Sorted(maps.Keys(names)) {
		if Dirs[l] == "" {
			errs = append(errs, driver.At(string(l), errNoPackages))
			continue
		}
		for i, name := range names[l] {
			errs = append(errs, driver.At(fmt.Sprintf("%s[%d]", l, i), checkRequirement(l, name)))
		}
	}
	return errors.Join(errs...)
}

var errNoPackages = errors.New("packages can be of python and of javascript only")

// checkRequirement returns an error if a requirement of a language is invalid.
func checkRequirement(l executor.Language, text string) (err error) {
	if l == executor.JavaScript {
		_, err = npm.Parse(text)
	} else {
		_, err = requirement.Parse(text)
	}
	return err
}

func (s *Sources) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http", strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' }):
		return errors.New("not an address such as https://example.org/simple")
	case u.User != nil:
		return errors.New("a configuration contains no password; pip in the image can have one (/etc/pip.conf)")
	case u.Scheme == "http" && !s.Insecure:
		return errors.New("http lets anybody on the way exchange packages; use https, or set insecure")
	}
	return nil
}

// Offline reports whether all packages are on this machine.
func (s *Sources) Offline() bool { return s.Wheels != "" && s.IndexURL == "" && len(s.FindLinks) == 0 }

// trusted returns the hosts that pip would otherwise not trust.
func (s *Sources) trusted() []string {
	var hosts []string
	for _, text := range append([]string{s.IndexURL}, s.FindLinks...) {
		if u, err := url.Parse(text); err == nil && u.Scheme == "http" && !slices.Contains(hosts, u.Host) {
			hosts = append(hosts, u.Host)
		}
	}
	return hosts
}

// Examine checks whether the local files in s exist. It does no network I/O.
func (s *Sources) Examine() []driver.Check {
	if s.Wheels == "" {
		return nil
	}
	ws, err := s.wheels()
	c := driver.Check{Name: "packages", OK: err == nil && len(ws) > 0, Detail: fmt.Sprintf("%d wheels in %s", len(ws), s.Wheels)}
	if err != nil {
		c.Detail = err.Error()
	}
	if !c.OK {
		c.Fix = "put wheels into the directory that packages.wheels names, or correct the name"
	}
	return []driver.Check{c}
}

// wheels lists the directory of wheels.
func (s *Sources) wheels() ([]wheel, error) {
	if s.Wheels == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.Wheels)
	if err != nil {
		return nil, driver.Fail(executor.ErrUnavailable, executor.RanNo, err)
	}
	var ws []wheel
	for _, e := range entries {
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() && filepath.Ext(e.Name()) == ".whl" {
			ws = append(ws, wheel{e.Name(), st.Size(), st.ModTime().UTC()})
		}
	}
	return ws, nil
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
