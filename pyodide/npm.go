package pyodide

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/internal/missing"
)

// minNPM is the first npm version that reads lock files of this format. Node.js 16 contains it.
const minNPM = 7

// findNPM returns the path of npm if it is installed and new enough.
func findNPM(ctx context.Context) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", missing.New(
			"npm", errors.New("it is not installed, and is needed once, to install Deno and Pyodide"),
			"install Node.js ("+installNode()+"), or set runtime_dir to a directory in which they are installed",
		)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, npm, "--version")
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		return "", missing.New("npm", fmt.Errorf("`npm --version`: %w", withStderr(err)), "install Node.js again ("+installNode()+")")
	}
	v := strings.TrimSpace(string(out))
	major, err := strconv.Atoi(v[:max(0, strings.IndexByte(v, '.'))])
	if err != nil || major < minNPM {
		return "", missing.New(
			"npm", fmt.Errorf("version %s is too old, version %d or later is needed", v, minNPM),
			fmt.Sprintf("run `npm install -g npm@%d`, or install a newer Node.js (%s)", minNPM+3, installNode()),
		)
	}
	return npm, nil
}

// installNode says how to install Node.js on this system.
func installNode() string {
	switch runtime.GOOS {
	case "darwin":
		return "`brew install node`"
	case "windows":
		return "`winget install OpenJS.NodeJS.LTS`"
	}
	return "for example `apt-get install nodejs npm`"
}

// askRegistry asks the registry for the version of Deno's package, by npm with all of its settings.
// Installing it would fail for the same reasons.
func askRegistry(ctx context.Context, npm string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	pkg := denoPackages[runtime.GOOS+"/"+runtime.GOARCH]
	return runNPM(ctx, npm, "", "view", pkg+"@"+DenoVersion, "version", "--prefer-online", "--fetch-retries=0")
}

// runNPM executes npm in a directory. If npm fails, the error is a *missing.Error.
func runNPM(ctx context.Context, npm, dir string, args ...string) error {
	c := exec.CommandContext(ctx, npm, append(args, "--json", "--loglevel=error", "--logs-max=0", "--no-update-notifier")...)
	c.Dir = dir
	detach(c)
	c.Cancel = func() error {
		killGroup(c.Process.Pid)
		return c.Process.Kill()
	}
	c.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return failureOf(err, stdout.String(), stderr.String()).missing(ctx, npm)
}

// npmFailure is what npm says of a failure.
type npmFailure struct{ code, text string }

// failureOf reads what npm has written. Up to version 8 its document is on standard error.
func failureOf(err error, stdout, stderr string) npmFailure {
	for _, said := range []string{stdout, stderr} {
		var doc struct {
			Error struct{ Code, Summary string }
		}
		at := max(0, strings.Index(said, "{"))
		if e := json.NewDecoder(strings.NewReader(said[at:])).Decode(&doc); e != nil || doc.Error.Code == "" {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimSpace(doc.Error.Summary), "\n")
		if _, reason, ok := strings.Cut(text, "reason: "); ok { // before it stands which package it was
			text = reason
		}
		text, _, _ = strings.Cut(text, " - GET ")
		if !strings.Contains(text, doc.Error.Code) {
			text += " (" + doc.Error.Code + ")"
		}
		return npmFailure{doc.Error.Code, text}
	}
	return npmFailure{text: fmt.Sprintf("npm: %v: %s", err, lastLines(stderr, 3))}
}

// missing says what a failure means, and what to do. It names the registry and the proxy, without
// the passwords that their addresses may have.
func (f npmFailure) missing(ctx context.Context, npm string) *missing.Error {
	registry := "the registry"
	if out, err := exec.CommandContext(ctx, npm, "config", "get", "registry").Output(); err == nil {
		registry = bare(strings.TrimSpace(string(out)))
	}
	m := missing.New("npm's registry", fmt.Errorf("%s: %s", registry, f.text), "")
	addresses := "the registry (`npm config get registry`)"
	network := "connect this machine to a network, or set HTTPS_PROXY if its network has a proxy, or correct the address of "
	if proxy := proxyOf(ctx, npm); proxy != "" {
		addresses += " and the proxy (" + proxy + ")"
		network = "connect this machine to a network, or correct the address of "
	}
	switch f.code {
	case "ENOTFOUND", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH":
		m.Fix = network + addresses
	case "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT":
		m.Fix = "nothing answers: correct the address of " + addresses
	case "ERR_INVALID_URL":
		m.Fix = "it is not an address such as http://host:8080: correct that of " + addresses
	case "FETCH_ERROR", "EJSONPARSE":
		m.Fix = "what answers is not a registry: log in to the network if it asks for that, or correct the address of " + addresses
	case "E401":
		m.Fix = "the registry requires a login: run `npm login`"
	case "E407":
		m.Fix = "the proxy requires a login: put the user and the password into its address"
	case "E404":
		m.Fix = "the registry does not have the packages: correct the address of " + addresses
	case "EINTEGRITY":
		m.Fix = "the download does not have the published checksum: run `npm cache verify`, and correct the address of " + addresses
	case "ENOSPC":
		m.Fix = "make room on the disk of npm's cache (`npm config get cache`) and on that of the cache directory"
	case "EACCES", "EPERM", "EROFS":
		m.Name, m.Fix = "npm's cache", "let this user write there, or set npm_config_cache to a directory where it may"
	default:
		switch {
		case strings.Contains(f.code, "CERT") || strings.HasPrefix(f.code, "UNABLE_TO_"):
			m.Fix = "the certificate is not trusted: put the file of its authority into `npm config set cafile`"
		case strings.HasPrefix(f.code, "E4") || strings.HasPrefix(f.code, "E5"):
			m.Fix = "it refuses: correct the address of " + addresses
		default:
			m.Fix = "run `npm ping` to see whether npm works"
		}
	}
	return m
}

// proxyOf says which proxy npm uses, and what has named it; "" is none.
func proxyOf(ctx context.Context, npm string) string {
	out, err := exec.CommandContext(ctx, npm, "config", "get", "https-proxy").Output()
	if address := strings.TrimSpace(string(out)); err == nil && address != "" && address != "null" {
		return "`npm config get https-proxy` is " + bare(address)
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && bytes.Contains(exit.Stderr, []byte("protected")) {
		return "npm's setting https-proxy, with a password" // which npm does not show
	}
	for _, v := range []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "proxy", "PROXY"} {
		if value := os.Getenv(v); value != "" {
			return v + " is " + bare(value)
		}
	}
	return ""
}

// bare returns an address without the user and the password in it.
func bare(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "not an address"
	}
	u.User = nil
	return u.String()
}
