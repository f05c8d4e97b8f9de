package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/internal/netnstest"
)

// These tests break a machine in each of the ways of docs/guides/first-hour.md, and compare what
// the real program prints with that page.

// broken is a machine that lacks something.
type broken struct {
	args   []string // of each command, after its name
	before string   // commands of a shell that break it
	env    []string // of the program
	user   bool     // who runs the program is not root
	alone  bool     // it has no network
	proxy  *proxy   // what its network has instead, at proxyAddress
	fixed  fixed
}

// fixed is a try to do what the page says.
type fixed struct {
	env    []string
	proxy  *proxy // instead of that of the machine
	args   []string
	prints string
}

// The page names these addresses.
const (
	exampleRegistry = "npm_config_registry=https://registry.example/"
	proxyAddress    = "127.0.0.1:3128"
)

// prepared is what works where the runtime is in the cache already.
var prepared = fixed{env: []string{"XDG_CACHE_HOME=/mnt/cache"}, args: []string{"run", "-c", "print(6*7)"}, prints: "42\n"}

// TestFirstHour breaks the machine itself.
func TestFirstHour(t *testing.T) {
	host, err := dockertest.Host()
	if err != nil {
		t.Skip(err)
	}
	docker := []string{"--backend", "docker"}
	testFirstHour(t, map[string]broken{
		"No npm": {before: "export PATH=/mnt", fixed: prepared},
		"No engine": {args: docker, fixed: fixed{
			env: []string{"DOCKER_HOST=" + host}, args: []string{"doctor", "--backend", "docker"}, prints: "ok       engine: ",
		}},
		"No right to the socket":          {args: docker, user: true, before: "mount --bind " + socket(t) + " /run; test -S /var/run/docker.sock"},
		"No right to the cache directory": {user: true, before: "mkdir -m 755 /home/me/.cache"},
		"Full disk": {fixed: prepared, before: `mkdir /home/me/.cache; mount -t tmpfs -o size=4m none /home/me/.cache
			! dd if=/dev/zero of=/home/me/.cache/full bs=64k 2>/dev/null`},
	})
}

// socket returns a directory with a socket like that of an engine, which only root may use.
func socket(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", path)
	if err == nil {
		t.Cleanup(func() { l.Close() })
		err = os.Chmod(path, 0o660)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFirstHourOfNetworks breaks the network of the machine.
func TestFirstHourOfNetworks(t *testing.T) {
	through := func(address string) []string {
		return []string{"HTTPS_PROXY=http://" + address, "HTTP_PROXY=http://" + address}
	}
	env := append(through(proxyAddress), exampleRegistry)
	reader := newReader(t)
	asks := []string{"doctor", "--backend", "pyodide"} // npm's registry for what is not there yet
	testFirstHour(t, map[string]broken{
		"Offline":                        {alone: true, env: []string{exampleRegistry}, fixed: prepared},
		"Nothing answers at the address": {alone: true, env: env, fixed: fixed{proxy: &proxy{}, env: through(proxyAddress), args: asks, prints: "fix: run `execbroker setup`"}},
		"The proxy wants a password": {alone: true, env: env, proxy: &proxy{login: "me:p@ss"}, fixed: fixed{
			env: through("me:p%40ss@" + proxyAddress), args: []string{"run", "-c", "print(6*7)"}, prints: "42\n",
		}},
		"The proxy reads along": {alone: true, env: env, proxy: reader, fixed: fixed{
			env: append(through(proxyAddress), "npm_config_cafile="+reader.authority), args: asks, prints: "fix: run `execbroker setup`",
		}},
	})
}

func testFirstHour(t *testing.T, machines map[string]broken) {
	needsRoot(t)
	page := readPage(t)
	for heading, m := range machines {
		t.Run(strings.ReplaceAll(strings.ToLower(heading), " ", "-"), func(t *testing.T) {
			t.Parallel()
			if len(page[heading]) == 0 {
				t.Fatalf("the page has no messages below %q", heading)
			}
			for _, said := range page[heading] {
				for _, command := range said.commands {
					args := append([]string{command}, m.args...)
					if command == "run" {
						args = append(args, "-c", "print(6*7)")
					}
					if got := m.do(t, m.proxy, m.env, args); !strings.Contains(got, said.text) {
						t.Errorf("%s: got\n%s\nwant the words of the page\n%s", command, got, said.text)
					}
				}
			}
			if f := m.fixed; f.args != nil {
				proxy := m.proxy
				if f.proxy != nil {
					proxy = f.proxy
				}
				if got := m.do(t, proxy, f.env, f.args); !strings.Contains(got, f.prints) {
					t.Errorf("after what the page says: got\n%s\nwant %q", got, f.prints)
				}
			}
		})
	}
}

// TestFirstHourOfNPM names the proxy by a setting of npm. The message says so, and not the
// password.
func TestFirstHourOfNPM(t *testing.T) {
	needsRoot(t)
	doctor := []string{"doctor", "--backend", "pyodide"}
	setting := func(login string) []string {
		return []string{"npm_config_https_proxy=http://" + login + proxyAddress, "npm_config_proxy=http://" + login + proxyAddress}
	}
	m := broken{alone: true}
	for login, want := range map[string]string{
		"":           "and the proxy (`npm config get https-proxy` is http://" + proxyAddress + ")",
		"me:hidden@": "and the proxy (npm's setting https-proxy, with a password)",
	} {
		if got := m.do(t, nil, append(setting(login), exampleRegistry), doctor); !strings.Contains(got, want) || strings.Contains(got, "hidden") {
			t.Errorf("got\n%s\nwant %q and no password", got, want)
		}
	}
	if got := m.do(t, &proxy{login: "me:hidden"}, setting("me:hidden@"), doctor); !strings.Contains(got, "fix: run `execbroker setup`") {
		t.Errorf("with the proxy: got\n%s", got)
	}
}

// TestBubblewrapIsMissing has machines without the program and without users for sandboxes. doctor
// says either once, and nothing of what it could not try.
func TestBubblewrapIsMissing(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	for name, c := range map[string]struct {
		machine broken
		want    string
	}{
		"program": {broken{before: "export PATH=/mnt"}, "missing  bwrap: exec: \"bwrap\": executable file not found in $PATH\n           fix: install bubblewrap"},
		"users":   {broken{user: true}, "missing  users: this program is not root and has no range of subordinate users, so code would have its user (/etc/subuid has none for nobody)\n           fix: install newuidmap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.machine.do(t, nil, nil, []string{"doctor", "--backend", "bubblewrap"})
			if !strings.Contains(got, c.want) || strings.Count(got, "missing  ") != 1 || strings.Contains(got, "python") {
				t.Errorf("got\n%s\nwant nothing missing but %s", got, c.want)
			}
		})
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes namespaces and mounts")
	}
}

// TestFirstHourIsWhole looks for a machine for each section, and for all three commands in it.
func TestFirstHourIsWhole(t *testing.T) {
	source := read(t, "firsthour_linux_test.go")
	for heading, says := range readPage(t) {
		var commands []string
		for _, s := range says {
			commands = append(commands, s.commands...)
		}
		slices.Sort(commands)
		if !slices.Equal(commands, []string{"doctor", "run", "setup"}) && heading != "No right to the socket" { // which setup does not open
			t.Errorf("%s: the page has messages of %q", heading, commands)
		}
		if !strings.Contains(source, `"`+heading+`": `) && !strings.Contains(source, `"`+heading+`":  `) {
			t.Errorf("%s: no machine is broken like that", heading)
		}
	}
}

// said is what the page says that commands print.
type said struct {
	commands []string
	text     string
}

var (
	sections = regexp.MustCompile(`(?m)^##+ (.+)$`)
	messages = regexp.MustCompile("(?ms)^((?:`\\w+`(?: and )?)+) prints?[^\n]*:\n\n```text\n(.*?)\n```$")
)

// readPage returns the messages of the page by the headings above them.
func readPage(t *testing.T) map[string][]said {
	t.Helper()
	text := read(t, filepath.Join("..", "..", "docs", "guides", "first-hour.md"))
	page, found := map[string][]said{}, 0
	heads := sections.FindAllStringSubmatchIndex(text, -1)
	for i, at := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		for _, m := range messages.FindAllStringSubmatch(text[at[1]:end], -1) {
			heading := text[at[2]:at[3]]
			page[heading] = append(page[heading], said{strings.FieldsFunc(m[1], func(r rune) bool { return r == '`' || r == ' ' }), m[2]})
			found++
		}
	}
	for heading, says := range page {
		for i := range says {
			says[i].commands = slices.DeleteFunc(says[i].commands, func(s string) bool { return s == "and" })
		}
		page[heading] = says
	}
	if n := strings.Count(text, "```text\n"); n != found {
		t.Errorf("%d blocks of the page are messages, and %d are after a line that names commands", n, found)
	}
	return page
}

// machine makes a machine out of this one, in a mount namespace: its home is new, and so is /run.
const machine = `set -e
mount -t tmpfs none /mnt
mkdir /mnt/cache
mount --bind "$FIRST_HOUR_CACHE" /mnt/cache
touch /mnt/execbroker
mount --bind "$FIRST_HOUR_PROGRAM" /mnt/execbroker
mount -t tmpfs none /home
mkdir -m 755 /home/me
`

// do runs the program on the machine, and returns what it prints.
func (m broken) do(t *testing.T, proxy *proxy, env, args []string) string {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	script := machine
	if !strings.Contains(m.before, " /run;") {
		script += "mount -t tmpfs none /run\n"
	}
	script += m.before + "\ncd /home/me\nexec "
	if m.user {
		script += "setpriv --reuid 65534 --regid 65534 --clear-groups "
	}
	c := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-c", script + `/mnt/execbroker "$@"`, "sh"}, args...)...)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		upper := strings.ToUpper(name)
		if !strings.HasPrefix(upper, "EXECBROKER_") && !strings.HasPrefix(upper, "DOCKER_") && !strings.HasPrefix(upper, "XDG_") &&
			!strings.HasSuffix(upper, "PROXY") && !strings.HasPrefix(upper, "NPM_CONFIG_CACHE") {
			c.Env = append(c.Env, v)
		}
	}
	config, err := userConfig()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "HOME=/home/me", "FIRST_HOUR_CACHE="+cache, "FIRST_HOUR_PROGRAM="+program, "npm_config_userconfig="+config)
	c.Env = append(c.Env, env...)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if m.alone {
		err = netnstest.Alone(func() error {
			if proxy != nil {
				l, err := net.Listen("tcp", proxyAddress)
				if err != nil {
					return err
				}
				proxy.serve(t, l)
			}
			return c.Start()
		})
	} else {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String()
}

// userConfig is the file with the settings of npm of this machine's user.
var userConfig = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("npm", "config", "get", "userconfig").Output()
	return strings.TrimSpace(string(out)), err
})
