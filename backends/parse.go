package backends

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/settings"
)

// maxBytes bounds a configuration. It is far more than a person writes, and bounds the cost of a
// hostile file.
const maxBytes = 256 << 10

// Parse decodes YAML or JSON of at most 256 KiB strictly. It returns all errors at once, each as a
// *executor.FieldError, joined. The Config then contains what could be decoded, so that Check can
// find more errors. If nothing could be decoded, Backends is nil.
func Parse(data []byte) (Config, error) {
	var c Config
	switch {
	case len(data) > maxBytes:
		return c, &executor.FieldError{Err: fmt.Errorf("the configuration has %d bytes; at most %d are allowed", len(data), maxBytes)}
	case !utf8.Valid(data):
		return c, &executor.FieldError{Err: errors.New("the configuration is not UTF-8")}
	}
	doc, err := document(data)
	y := converter{refused: map[string]bool{}}
	raw := data
	switch {
	case json.Valid(data):
		// Most JSON is also YAML, and then the YAML parser gives the positions. If it is not, as
		// with tabs between the fields, messages have no positions.
	case err != nil && bytes.HasPrefix(bytes.TrimSpace(data), []byte(`{"`)):
		return c, driver.DecodeStrict(data, &c) // it was meant as JSON, and what JSON says about it is clearer
	case err != nil:
		return c, err
	default:
		y.value("", 0, doc)
		raw = y.out
	}
	c.at = positions{doc: doc, wrong: map[string]bool{}}
	errs := y.errs
	for _, e := range c.at.locate(driver.DecodeStrict(raw, &c)) {
		if !y.refused[e.Path] {
			errs = append(errs, e)
		}
	}
	for _, e := range errs {
		c.at.wrong[e.Path] = true
	}
	return c, settings.Join(errs, 0)
}

// document parses YAML into nodes. It does not follow aliases, so they cannot multiply.
func document(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, &executor.FieldError{Err: errors.New("the configuration is empty")}
	case err != nil:
		return nil, syntaxError(err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, &executor.FieldError{Line: second.Line, Column: second.Column, Err: errors.New("a second document begins; a configuration must be one document")}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(err)
	}
	return doc.Content[0], nil
}

// syntaxError extracts the line number from the parser's message.
func syntaxError(err error) error {
	line, problem := 0, strings.TrimPrefix(err.Error(), "yaml: ")
	if at, rest, ok := strings.Cut(problem, ": "); ok {
		if n, err := strconv.Atoi(strings.TrimPrefix(at, "line ")); err == nil {
			line, problem = n, rest
		}
	}
	if strings.Contains(problem, "cannot start any token") {
		problem += "; indent with spaces, not with tabs, and put text that begins with one of %@`&*! in quotes"
	}
	return &executor.FieldError{Line: line, Err: errors.New("not YAML: " + problem)}
}
