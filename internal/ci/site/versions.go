package main

import (
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// versionList is versions.json, which the switcher of each page reads.
type versionList struct {
	Latest   string   `json:"latest"`   // the newest release, or main before the first
	Versions []string `json:"versions"` // newest first, and main before all releases
}

// listVersions writes versions.json for the versions in a directory, and latest, whose pages lead
// to those of the newest release.
func listVersions(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var l versionList
	for _, e := range entries {
		if e.IsDir() && versionName.MatchString(e.Name()) {
			l.Versions = append(l.Versions, e.Name())
		}
	}
	slices.SortFunc(l.Versions, func(a, b string) int { return slices.Compare(numbers(b), numbers(a)) })
	l.Latest = l.Versions[0]
	if l.Latest == "main" && len(l.Versions) > 1 {
		l.Latest = l.Versions[1]
	}
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "versions.json"), data, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "index.html"), redirect("latest/"), 0o644); err != nil {
		return err
	}
	latest := filepath.Join(dir, "latest")
	if err := os.RemoveAll(latest); err != nil {
		return err
	}
	newest := filepath.Join(dir, l.Latest)
	return eachPage(newest, func(file string, _ []byte) error {
		name, err := filepath.Rel(newest, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		stub := filepath.Join(latest, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(stub), 0o755); err != nil {
			return err
		}
		up := strings.Repeat("../", strings.Count(name, "/")+1)
		return os.WriteFile(stub, redirect(up+l.Latest+"/"+strings.TrimSuffix(name, "index.html")), 0o644)
	})
}

// numbers are the parts of a version; main is above all.
func numbers(version string) (parts []int) {
	if version == "main" {
		return []int{1 << 30}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(version, "v"), ".") {
		n, _ := strconv.Atoi(part) // versionName has only digits there
		parts = append(parts, n)
	}
	return parts
}

// redirect is a page that leads to another, without a script.
func redirect(to string) []byte {
	to = html.EscapeString(to)
	return fmt.Appendf(nil, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>execbroker</title>
<meta http-equiv="refresh" content="0; url=%[1]s">
</head>
<body><p><a href="%[1]s">%[1]s</a></p></body>
</html>
`, to)
}

// eachPage calls f for each HTML file of a directory.
func eachPage(dir string, f func(file string, text []byte) error) error {
	return filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(file) != ".html" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return f(file, text)
	})
}
