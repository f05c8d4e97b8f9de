package tool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Definition is what a model is told about the tool. Its methods return it in the formats of the
// common model APIs.
type Definition struct {
	Name        string
	Description string
	Input       *Schema // schema of the arguments: see Input
	Output      *Schema // schema of the answer: see Output
}

// Schema is the part of JSON Schema that definitions use. Zero fields are left out.
type Schema struct {
	Type        string             `json:"type,omitempty"`
	Nullable    bool               `json:"-"` // the value may also be null
	Description string             `json:"description,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Default     any                `json:"default,omitempty"`
	Minimum     float64            `json:"minimum,omitempty"`
	Maximum     float64            `json:"maximum,omitempty"`
	MaxLength   int                `json:"maxLength,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Closed      bool               `json:"-"` // no other properties
}

// Define describes the tool on a backend with capabilities c. It does not offer the model anything
// that the backend cannot do. Versions and packages of an image are only in Tool.Definition, after
// Learn.
func Define(c executor.Capabilities, o Options) Definition { return define(c, o, facts{}) }

func define(c executor.Capabilities, o Options, f facts) Definition {
	o = o.with(c)
	return Definition{Name: o.Name, Description: describe(c, o), Input: inputSchema(c, o, f), Output: outputSchema()}
}

// describe returns a short description: some APIs allow 1024 characters.
func describe(c executor.Capabilities, o Options) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	say("Runs %s code in an isolated sandbox and returns what it printed, the value of its last expression, images and files. ", words(o.Languages, "or"))
	say("Use it for exact calculations, data analysis, charts, reading and converting files, and to check that code works. ")
	say("Do not use it for what you can answer without running code")
	switch o.Spec.Network.Mode {
	case executor.NetworkFull:
		say(". ")
	case executor.NetworkAllowlist:
		say(", nor to reach other hosts than %s. ", strings.Join(o.Spec.Network.Hosts, ", "))
	default:
		say(", nor to download anything or call an API: the code has no network. ")
	}
	say("Pass the program itself, without Markdown; print what you want to see. ")
	if len(c.Languages) > 0 && c.Has(executor.FeatureState) {
		say("Variables and files stay for the next call of the conversation, unless an answer says that they are gone. ")
	} else {
		say("Variables do not stay for the next call. ")
	}
	if files, without := filed(c, o.Languages); len(files) > 0 {
		say("The working directory is %s: write files there, by relative names. ", strings.Join(append([]string{executor.Workdir}, o.Spec.Aliases...), ", also "))
		if len(without) > 0 {
			say("There are no files in %s. ", words(without, "or"))
		}
	}
	say("There is nobody to answer input().")
	return b.String()
}

// versions describes each language: its version, or what a script can do.
func versions(c executor.Capabilities, o Options, f facts) string {
	var b strings.Builder
	for _, l := range o.Languages {
		r, _ := c.Runtime(l)
		if v := cmp.Or(f.languages[l].version, r.Version); v != "" && l != Bash {
			fmt.Fprintf(&b, " %s is %s.", l, v)
		}
	}
	if !slices.Contains(o.Languages, Bash) {
		return b.String()
	}
	fmt.Fprintf(&b, " %s runs shell commands with the files of the other languages, without their variables", Bash)
	switch o.Spec.Network.Mode {
	case executor.NetworkFull, executor.NetworkAllowlist:
		b.WriteString(", over the same network")
	default:
		b.WriteString(" and without network")
	}
	if len(f.commands) > 0 {
		fmt.Fprintf(&b, "; among them are %s", strings.Join(f.commands, ", "))
	}
	return b.String() + "."
}

// filed separates the languages whose code starts in the working directory from the others.
func filed(c executor.Capabilities, ls []executor.Language) (files, without []executor.Language) {
	for _, l := range ls {
		if l == Bash || c.HasFor(l, executor.FeatureWorkdir) {
			files = append(files, l)
		} else {
			without = append(without, l)
		}
	}
	return files, without
}

func inputSchema(c executor.Capabilities, o Options, f facts) *Schema {
	s := &Schema{Type: "object", Required: []string{"code"}, Closed: true, Properties: map[string]*Schema{
		"code": {Type: "string", MaxLength: o.MaxCode, Description: "The program to run, as plain source text." + f.installed(o.Languages)},
		"timeout": {
			Type: "number", Default: o.Timeout.Seconds(), Minimum: min(minTimeout, o.MaxTimeout).Seconds(), Maximum: o.MaxTimeout.Seconds(),
			Description: fmt.Sprintf("Seconds after which the program is stopped; %v if not given.", o.Timeout.Seconds()),
		},
	}}
	if len(o.Languages) > 0 {
		l := &Schema{Type: "string", Default: string(o.Languages[0]), Description: fmt.Sprintf("The language of the code; %s if not given.%s", o.Languages[0], versions(c, o, f))}
		for _, name := range o.Languages {
			l.Enum = append(l.Enum, string(name))
			if name == executor.JavaScript && o.takes(c, executor.TypeScript) {
				l.Enum = append(l.Enum, string(executor.TypeScript))
			}
		}
		s.Properties["language"] = l
	}
	if ls := o.installs(c); len(ls) > 0 {
		text := fmt.Sprintf("Packages that the %s code imports and that are not there yet, as names for the installer.", words(ls, "or"))
		for _, l := range ls {
			if o.Packages != nil {
				text += fmt.Sprintf(" Allowed for %s: %s.", l, strings.Join(o.Packages[l], ", "))
			}
		}
		s.Properties["packages"] = &Schema{Type: "array", Items: &Schema{Type: "string"}, Description: text}
	}
	if o.takesFiles(c) {
		s.Properties["files"] = &Schema{
			Type: "array", Description: "Files to write into the working directory before the code runs.",
			Items: &Schema{Type: "object", Required: []string{"name"}, Closed: true, Properties: map[string]*Schema{
				"name":    {Type: "string", Description: "Name relative to the working directory."},
				"content": {Type: "string", Description: "The content, as text."},
				"base64":  {Type: "string", Description: "The content in base64, for what is not text."},
			}},
		}
	}
	return s
}

// minTimeout is the shortest timeout of a call. Starting takes some time, and not every schema
// language can express "more than 0".
const minTimeout = time.Second

func outputSchema() *Schema {
	return &Schema{
		Type: "object", Closed: true,
		Required: []string{"success", "language", "stdout", "stderr", "returnValue", "executionTime", "images", "files", "error"},
		Properties: map[string]*Schema{
			"success":       {Type: "boolean", Description: "Whether the code ran to its end without an error."},
			"language":      {Type: "string", Description: "The language that the code was run as."},
			"stdout":        {Type: "string", Description: "What the code printed."},
			"stderr":        {Type: "string", Description: "What the code wrote to standard error, and notes on the run in square brackets."},
			"returnValue":   {Description: "The value of the last expression: JSON if it is plain data, otherwise text; null if there is none."},
			"executionTime": {Type: "number", Description: "Seconds that the code ran."},
			"images": {Type: "array", Description: "Figures and other images that the code displayed.", Items: &Schema{
				Type: "object", Closed: true, Required: []string{"type", "base64"}, Properties: map[string]*Schema{
					"type":   {Type: "string", Description: "Media type, for example image/png."},
					"base64": {Type: "string"},
					"file":   {Type: "string", Description: "Name of a file that has the same content, if there is one."},
				},
			}},
			"files": {Type: "array", Description: "Files that the code made or changed.", Items: &Schema{
				Type: "object", Closed: true, Required: []string{"name", "type", "size"}, Properties: map[string]*Schema{
					"name":   {Type: "string", Description: "Name relative to the working directory."},
					"type":   {Type: "string", Description: "Media type."},
					"size":   {Type: "integer", Description: "Bytes."},
					"base64": {Type: "string", Description: "The content, unless it is too large or that of an image."},
				},
			}},
			"error": {Type: "string", Nullable: true, Description: "What went wrong and what can be done about it; null if nothing did."},
		},
	}
}

// words joins names with commas and a final word, as in a sentence.
func words(ls []executor.Language, and string) string {
	var names []string
	for _, l := range ls {
		names = append(names, string(l))
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + and + " " + names[len(names)-1]
}
