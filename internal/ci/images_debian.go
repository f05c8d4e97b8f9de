package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// suitePlace stands in a source for the name of the suite.
const suitePlace = "{suite}"

// mirrorVariable overrides the mirror, for machines that are not Debian: the address of a Debian
// archive.
const mirrorVariable = "EXECBROKER_DEBIAN_MIRROR"

// debianMirror returns the line of a sources list, with suitePlace in it, that this machine
// installs its own packages by: whoever set the machine up knows what it can reach.
func debianMirror() (string, error) {
	if m := os.Getenv(mirrorVariable); m != "" {
		return "deb " + m + " " + suitePlace + " main", nil
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	files := []string{"/etc/apt/sources.list"}
	for _, pattern := range []string{"*.sources", "*.list"} {
		m, err := filepath.Glob("/etc/apt/sources.list.d/" + pattern)
		if err != nil {
			return "", err
		}
		files = append(files, m...)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if m := findMirror(string(release), string(b), strings.HasSuffix(name, ".sources")); m != "" {
			return m, nil
		}
	}
	return "", fmt.Errorf("no source of Debian's packages in /etc/apt; set %s to a mirror", mirrorVariable)
}

// findMirror looks in a file of apt's for the source of the release's own suite. The ones for
// updates and security have longer names.
func findMirror(release, list string, deb822 bool) string {
	r := map[string]string{}
	for line := range strings.Lines(release) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		r[k] = strings.Trim(v, `"'`)
	}
	if r["ID"] != "debian" {
		return ""
	}
	suite := cmp.Or(r["VERSION_CODENAME"], "unstable")
	if deb822 {
		return findStanza(list, suite)
	}
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "deb" {
			continue
		}
		options := ""
		if strings.HasPrefix(f[1], "[") {
			end := slices.IndexFunc(f, func(s string) bool { return strings.HasSuffix(s, "]") })
			if end < 0 || len(f) < end+4 {
				continue
			}
			options, f = strings.Join(f[1:end+1], " ")+" ", f[end:]
		}
		if f[2] == suite && slices.Contains(f[3:], "main") {
			return "deb " + options + f[1] + " " + suitePlace + " main"
		}
	}
	return ""
}

// findStanza is findMirror for the newer format.
func findStanza(list, suite string) string {
	for stanza := range strings.SplitSeq(list, "\n\n") {
		f := map[string][]string{}
		for line := range strings.Lines(stanza) {
			if k, v, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
				f[strings.ToLower(k)] = strings.Fields(v)
			}
		}
		if !slices.Contains(f["types"], "deb") || !slices.Contains(f["suites"], suite) || !slices.Contains(f["components"], "main") || len(f["uris"]) == 0 {
			continue
		}
		options := ""
		if k := f["signed-by"]; len(k) == 1 && filepath.IsAbs(k[0]) {
			options = "[signed-by=" + k[0] + "] "
		}
		return "deb " + options + f["uris"][0] + " " + suitePlace + " main"
	}
	return ""
}
