package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/executor/driver"
)

// maxClientFile is the largest configuration file of a client, in bytes.
const maxClientFile = 4 << 20

// mcpClient is a program that speaks the Model Context Protocol and lists its servers in a file.
type mcpClient struct {
	title string
	list  string // the key with the servers
	file  func(userDirs) string
	entry func(server mcpEntry) any // returns an entry of the list
}

// mcpEntry is the command by which a client starts this program.
type mcpEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// userDirs are the directories of a user.
type userDirs struct{ home, config string }

func plainEntry(e mcpEntry) any { return e }

// mcpClients are the clients that mcp install supports, by the names that it uses.
var mcpClients = map[string]mcpClient{
	"claude-desktop": {"Claude Desktop", "mcpServers", func(p userDirs) string { return filepath.Join(p.config, "Claude", "claude_desktop_config.json") }, plainEntry},
	"claude-code":    {"Claude Code", "mcpServers", func(p userDirs) string { return filepath.Join(p.home, ".claude.json") }, plainEntry},
	"cursor":         {"Cursor", "mcpServers", func(p userDirs) string { return filepath.Join(p.home, ".cursor", "mcp.json") }, plainEntry},
	"gemini-cli":     {"Gemini CLI", "mcpServers", func(p userDirs) string { return filepath.Join(p.home, ".gemini", "settings.json") }, plainEntry},
	"lm-studio":      {"LM Studio", "mcpServers", func(p userDirs) string { return filepath.Join(p.home, ".lmstudio", "mcp.json") }, plainEntry},
	"vscode": {"Visual Studio Code", "servers", func(p userDirs) string { return filepath.Join(p.config, "Code", "User", "mcp.json") }, func(e mcpEntry) any {
		e.Type = "stdio"
		return e
	}},
	"windsurf": {"Windsurf", "mcpServers", func(p userDirs) string { return filepath.Join(p.home, ".codeium", "windsurf", "mcp_config.json") }, plainEntry},
}

// newUserDirs returns the directories of the user.
func newUserDirs() (userDirs, error) {
	home, err := os.UserHomeDir()
	config, noConfig := os.UserConfigDir()
	return userDirs{home: home, config: config}, errors.Join(err, noConfig)
}

func (a *app) mcpInstallCommand() *cobra.Command {
	var o mcpInstallation
	names := slices.Sorted(maps.Keys(mcpClients))
	c := &cobra.Command{
		Use:   "install CLIENT",
		Short: "Add this program to the configuration of an MCP client",
		Long: `Add an entry for this program to the configuration of a client of the Model
Context Protocol: ` + strings.Join(names, ", ") + `.

The entry contains the flags --config, --backend and --dir. The rest of the file is kept,
and the file as it was is copied to FILE` + backupSuffix + `. If there is a different entry with
the same name, or the file is not JSON, the command fails and changes nothing. With
--dry-run it prints the file as it would be. Restart the client afterwards.`,
		Example: `  execbroker mcp install cursor
  execbroker mcp install vscode --config app.yaml --name app`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.mcpInstall(args[0], o) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVar(&o.name, "name", "sandbox", "the `name` of the server in the client")
	c.Flags().StringVar(&o.dir, "dir", "", "copy the files of this `directory` into the sandbox, and results back")
	c.Flags().BoolVar(&o.dry, "dry-run", false, "print the file as it would be, and change nothing")
	must(c.MarkFlagDirname("dir"))
	return c
}

// backupSuffix is the end of the name of a client's file as it was before.
const backupSuffix = ".execbroker-backup"

// mcpInstallation are the flags of mcp install.
type mcpInstallation struct {
	name, dir string
	dry       bool
}

// mcpEntry returns the command that starts this program with its current flags, and with a
// directory unless dir is empty. Clients start programs in other directories and with another PATH,
// so file names are absolute.
func (a *app) mcpEntry(dir string) (mcpEntry, error) {
	exe, err := os.Executable()
	if err != nil {
		return mcpEntry{}, err
	}
	e := mcpEntry{Command: exe, Args: []string{"mcp"}}
	if a.config != "" {
		file, err := filepath.Abs(a.config)
		if err != nil {
			return e, usage("--config: %w", err)
		}
		e.Args = append(e.Args, "--config", file)
	}
	if a.backend != "" {
		e.Args = append(e.Args, "--backend", a.backend)
	}
	if dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return e, usage("--dir: %w", err)
		}
		e.Args = append(e.Args, "--dir", dir)
	}
	return e, nil
}

func (a *app) mcpInstall(client string, o mcpInstallation) error {
	c, ok := mcpClients[client]
	if !ok {
		return usage("%w", driver.Unknown("client", client, slices.Sorted(maps.Keys(mcpClients))))
	}
	if o.name == "" {
		return usage("--name: want a name")
	}
	if _, err := a.routed(); err != nil { // the client would not show this error
		return err
	}
	if o.dir != "" {
		m, err := openMirror(o.dir)
		if err != nil {
			return err
		}
		m.close()
	}
	p, err := newUserDirs()
	if err != nil {
		return err
	}
	e, err := a.mcpEntry(o.dir)
	if err != nil {
		return err
	}
	file := c.file(p)
	text, changed, err := addServer(file, c.list, o.name, c.entry(e), o.dry)
	if err != nil {
		return usage("%s: %w", plain(file), err)
	}
	if o.dry && !a.json {
		_, err := fmt.Fprintf(a.out, "%s would be:\n%s", plain(file), plainText(string(text)))
		return err
	}
	if a.json {
		return a.printJSON(struct {
			Client  string `json:"client"`
			File    string `json:"file"`
			Changed bool   `json:"changed"`
			DryRun  bool   `json:"dry_run,omitempty"`
		}{client, file, changed, o.dry})
	}
	verb := "is now"
	if !changed {
		verb = "was already"
	}
	_, err = fmt.Fprintf(a.out, "%s %s a server of %s, in %s; restart the client\n", plain(o.name), verb, c.title, plain(file))
	return err
}

// addServer adds an entry to a JSON file and returns its new content. Everything else in the file
// stays, with its order and spelling. Only whitespace changes. The file as it was is kept as a
// backup. If dry is set, nothing is written.
func addServer(file, list, name string, entry any, dry bool) (content []byte, changed bool, err error) {
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, false, err
	}
	doc, servers := &object{}, &object{}
	mode := fs.FileMode(0o600)
	data, err := readBounded(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, false, err
	default:
		if info, err := os.Stat(file); err == nil {
			mode = info.Mode().Perm()
		}
		if len(bytes.TrimSpace(data)) > 0 {
			if err := doc.parse(data); err != nil {
				return nil, false, fmt.Errorf("not a JSON object, so the file was not changed: %w", err)
			}
		}
	}
	if old := doc.get(list); old != nil {
		if err := servers.parse(old); err != nil {
			return nil, false, fmt.Errorf("%q is not a JSON object, so the file was not changed: %w", list, err)
		}
	}
	if old := servers.get(name); old != nil {
		var was, is any
		if json.Unmarshal(old, &was) == nil && json.Unmarshal(text, &is) == nil && fmt.Sprint(was) == fmt.Sprint(is) {
			return data, false, nil
		}
		return nil, false, fmt.Errorf("there is another server named %q; remove it or choose another --name", name)
	}
	servers.set(name, text)
	doc.set(list, servers.bytes())
	var out bytes.Buffer
	if err := json.Indent(&out, doc.bytes(), "", "  "); err != nil {
		return nil, false, err
	}
	out.WriteByte('\n')
	if dry {
		return out.Bytes(), true, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, false, err
	}
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // a symbolic link is kept
	}
	if data != nil {
		if err := replaceFile(file+backupSuffix, data, mode); err != nil {
			return nil, false, err
		}
	}
	err = replaceFile(file, out.Bytes(), mode)
	return out.Bytes(), err == nil, err
}

// replaceFile writes a file that appears complete or not at all.
func replaceFile(file string, data []byte, mode fs.FileMode) error {
	part, err := os.CreateTemp(filepath.Dir(file), ".execbroker-*")
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	if err = errors.Join(err, part.Chmod(mode), part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		os.Remove(part.Name())
	}
	return err
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxClientFile+1))
	if err == nil && len(data) > maxClientFile {
		err = fmt.Errorf("more than %s", size(maxClientFile))
	}
	return data, err
}

// object is a JSON object that keeps the order of its members.
type object struct {
	names  []string
	values map[string]json.RawMessage
}

func (o *object) parse(data []byte) error {
	if err := json.Unmarshal(data, &o.values); err != nil {
		return err
	}
	if o.values == nil {
		return errors.New("it is null")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if n, ok := name.(string); ok && !slices.Contains(o.names, n) {
			o.names = append(o.names, n)
		}
	}
	return nil
}

func (o *object) get(name string) json.RawMessage { return o.values[name] }

func (o *object) set(name string, value json.RawMessage) {
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	if o.values == nil {
		o.values = map[string]json.RawMessage{}
	}
	o.values[name] = value
}

func (o *object) bytes() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(name) // a string can always be encoded
		b.Write(key)
		b.WriteByte(':')
		b.Write(o.values[name])
	}
	b.WriteByte('}')
	return b.Bytes()
}

// mcpHello tells a person who has started mcp at a terminal what it is.
func (a *app) mcpHello() error {
	e, err := a.mcpEntry("")
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]map[string]mcpEntry{"mcpServers": {"sandbox": e}}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, `execbroker: this is a server of the Model Context Protocol. A client starts it and uses its
standard input and output. It is not for use at a terminal. Press Ctrl-C to end it.

Most clients accept this entry in their configuration (Visual Studio Code calls the first key "servers"):

%s

"execbroker mcp install CLIENT" writes the entry for %s. --listen serves HTTP.
`, plainText(string(text)), strings.Join(slices.Sorted(maps.Keys(mcpClients)), ", "))
	return err
}
