package main

import (
	"bytes"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// describedServer has the fields of schema 2025-09-29 of the MCP registry that server.json may have
// as long as no version is released. Packages and remotes come with a release.
type describedServer struct {
	Schema      string `json:"$schema"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"`
	Repository  struct {
		URL    string `json:"url"`
		Source string `json:"source"`
	} `json:"repository"`
	WebsiteURL string `json:"websiteUrl"`
}

// problems returns how d violates the schema.
func (d describedServer) problems() (found []string) {
	for what, wrong := range map[string]bool{
		"schema":      d.Schema != "https://static.modelcontextprotocol.io/schemas/2025-09-29/server.schema.json",
		"name":        !regexp.MustCompile(`^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$`).MatchString(d.Name) || len(d.Name) > 200,
		"description": d.Description == "" || len(d.Description) > 100,
		"version":     !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(d.Version), // no range
		"source":      d.Repository.Source != "github" || !strings.HasPrefix(d.Repository.URL, "https://github.com/"),
	} {
		if wrong {
			found = append(found, what)
		}
	}
	if u, err := url.Parse(d.WebsiteURL); err != nil || !u.IsAbs() {
		found = append(found, "websiteUrl")
	}
	return found
}

// server.json has the form that registries of MCP servers accept.
func TestServerJSON(t *testing.T) {
	text := read(t, "../../server.json")
	var d describedServer
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if got := d.problems(); len(got) > 0 {
		t.Errorf("%q are not as the schema wants them", got)
	}
	for name, change := range map[string]func(*describedServer){
		"name":        func(d *describedServer) { d.Name = "execbroker" },
		"description": func(d *describedServer) { d.Description = string(bytes.Repeat([]byte("x"), 101)) },
		"version":     func(d *describedServer) { d.Version = "^1.2.3" },
		"websiteUrl":  func(d *describedServer) { d.WebsiteURL = "docs" },
	} {
		bad := d
		if change(&bad); len(bad.problems()) != 1 {
			t.Errorf("%s: got %q", name, bad.problems())
		}
	}
}
