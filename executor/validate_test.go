package executor_test

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// checkInvalid checks that err is ErrInvalid and contains want, or is nil if want is empty. It must
// not contain the word secret.
func checkInvalid(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("got %v, want none", err)
		}
		return
	}
	var e *executor.Error
	if !errors.As(err, &e) || e.Kind != executor.ErrInvalid || e.Ran != executor.RanNo {
		t.Fatalf("got %v, want ErrInvalid with RanNo", err)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want %q in it", err, want)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a value is in the error: %v", err)
	}
}

func TestSpecValidate(t *testing.T) {
	labels := func(k, v string) executor.Spec { return executor.Spec{Labels: map[string]string{k: v}} }
	env := func(k, v string) executor.Spec { return executor.Spec{Env: map[string]string{k: v}} }
	aliases := func(names ...string) executor.Spec { return executor.Spec{Aliases: names} }
	pkgs := func(names ...string) executor.Spec {
		return executor.Spec{Packages: []executor.Packages{{Names: names}}}
	}
	for name, c := range map[string]struct {
		spec executor.Spec
		want string
	}{
		"zero":              {},
		"languages":         {spec: executor.Spec{Languages: []executor.Language{executor.Python, executor.JavaScript}}},
		"language-empty":    {executor.Spec{Languages: []executor.Language{""}}, "languages:"},
		"language-repeated": {executor.Spec{Languages: []executor.Language{"a", "a"}}, "languages:"},
		"label":             {spec: labels("a.b-c_9", "printable ~")},
		"label-upper":       {labels("A", ""), "labels: key"},
		"label-empty":       {labels("", ""), "labels: key"},
		"label-long":        {labels(strings.Repeat("a", 64), ""), "labels: key"},
		"label-reserved":    {labels("execbroker.owner", ""), "reserved"},
		"label-newline":     {labels("a\n", ""), "labels: key"},
		"label-value":       {labels("a", "secret\n"), "labels: value"},
		"label-value-utf8":  {labels("a", "ü"), "labels: value"},
		"label-value-long":  {labels("a", strings.Repeat("v", 256)), "labels: value"},
		"env":               {spec: env("PATH", "a=b")},
		"env-empty":         {env("", "secret"), "env: name"},
		"env-equals":        {env("A=B", "secret"), "env: name"},
		"env-nul":           {env("A\x00", "secret"), "env: name"},
		"env-value-nul":     {env("A", "secret\x00"), `env: value of "A"`},
		"env-value-bytes":   {env("A", "secret\xff"), `env: value of "A"`},
		"packages":          {spec: pkgs("numpy==2.3", "pkg[extra]>=1")},
		"packages-none":     {pkgs(), "packages: none"},
		"packages-empty":    {pkgs("a", ""), "packages:"},
		"packages-option":   {pkgs("--index-url=x"), "packages:"},
		"packages-newline":  {pkgs("a\n-r x"), "packages:"},
		"packages-language": {executor.Spec{Languages: []executor.Language{"a"}, Packages: []executor.Packages{{Language: "b", Names: []string{"x"}}}}, "not one of the languages"},
		"limits-negative":   {executor.Spec{Limits: executor.Limits{MemoryBytes: -1}}, "limits:"},
		"limits-nan":        {executor.Spec{Limits: executor.Limits{CPUs: math.NaN()}}, "limits:"},
		"limits-infinite":   {executor.Spec{Limits: executor.Limits{CPUs: math.Inf(1)}}, "limits:"},
		"run-unlimited":     {spec: executor.Spec{Run: executor.RunLimits{WallTime: executor.NoLimit}}},
		"run-negative":      {executor.Spec{Run: executor.RunLimits{WallTime: -2}}, "run: wall time"},
		"run-output":        {executor.Spec{Run: executor.RunLimits{OutputBytes: -1}}, "run: output"},
		"max-run-negative":  {executor.Spec{MaxRun: executor.RunLimits{WallTime: -2}}, "max run: wall time"},
		"run-over-max": {
			executor.Spec{Run: executor.RunLimits{WallTime: time.Hour}, MaxRun: executor.RunLimits{WallTime: time.Minute}}, "wall-time<=1m0s",
		},
		"run-unlimited-over-max": {
			executor.Spec{Run: executor.RunLimits{WallTime: executor.NoLimit}, MaxRun: executor.RunLimits{WallTime: time.Minute}}, "wall-time<=1m0s",
		},
		"default-over-max":  {spec: executor.Spec{MaxRun: executor.RunLimits{WallTime: time.Second, OutputBytes: 1}}},
		"idle-negative":     {executor.Spec{IdleTTL: -1}, "idle ttl"},
		"life-negative":     {executor.Spec{MaxLife: -1}, "max life"},
		"isolation":         {spec: executor.Spec{MinIsolation: executor.IsolationGVisor}},
		"isolation-unknown": {executor.Spec{MinIsolation: "steel"}, "min isolation"},
		"aliases":           {spec: aliases("/mnt/data", "/home/user", "/mnt/more/deep", "/opt/A-b_c.d")},
		"alias-relative":    {aliases("mnt/data"), "absolute"},
		"alias-top":         {aliases("/data"), "below another directory"},
		"alias-root":        {aliases("/"), "absolute"},
		"alias-empty":       {aliases(""), "absolute"},
		"alias-unclean":     {aliases("/mnt/../mnt/data"), "clean"},
		"alias-slash":       {aliases("/mnt/data/"), "clean"},
		"alias-dots":        {aliases("/mnt/.."), "clean"},
		"alias-comma":       {aliases("/mnt/a,b"), "clean"},
		"alias-newline":     {aliases("/mnt/a\n"), "clean"},
		"alias-long":        {aliases("/mnt/" + strings.Repeat("a", 60)), "at most 60"},
		"alias-workdir":     {aliases("/workspace/data"), "nothing below /workspace"},
		"alias-temp":        {aliases("/tmp/data"), "nothing below /tmp"},
		"alias-proc":        {aliases("/proc/data"), "nothing below /proc"},
		"alias-repeated":    {aliases("/mnt/data", "/mnt/data"), "repeated"},
		"alias-below":       {aliases("/mnt/data", "/mnt/data/x"), "below or above"},
		"alias-above":       {aliases("/mnt/data/x", "/mnt/data"), "below or above"},
		"aliases-many":      {aliases("/a/a", "/a/b", "/a/c", "/a/d", "/a/e"), "at most 4"},
		"alias-all":         {aliases("/dev/x", "data"), "another name of /workspace\naliases: \"data\""},
		"require-empty":     {executor.Spec{Require: []executor.Feature{""}}, "require"},
	} {
		t.Run(name, func(t *testing.T) { checkInvalid(t, c.spec.Validate(), c.want) })
	}
}

func TestNetworkValidate(t *testing.T) {
	allow := func(hosts ...string) executor.NetworkPolicy {
		return executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: hosts}
	}
	for name, c := range map[string]struct {
		policy executor.NetworkPolicy
		want   string
	}{
		"none":          {policy: executor.NetworkPolicy{Mode: executor.NetworkNone}},
		"full":          {policy: executor.NetworkPolicy{Mode: executor.NetworkFull}},
		"names":         {policy: allow("example.org", "*.example.org", "a-b.C9.example", "localhost", strings.Repeat("a", 63)+".de")},
		"addresses":     {policy: allow("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1")},
		"blocks":        {policy: allow("192.0.2.0/24", "2001:db8::/32", "0.0.0.0/0")},
		"unknown-mode":  {executor.NetworkPolicy{Mode: "some"}, "mode"},
		"hosts-in-none": {executor.NetworkPolicy{Hosts: []string{"example.org"}}, "hosts need mode"},
		"empty-list":    {allow(), "needs hosts"},
		"port":          {allow("example.org:443"), "ports"},
		"port-v6":       {allow("[2001:db8::1]:443"), "ports"},
		"url":           {allow("https://example.org/x"), "CIDR"},
		"zone":          {allow("fe80::1%eth0"), "zone"},
		"loose-block":   {allow("192.0.2.1/24"), "192.0.2.0/24"},
		"bad-block":     {allow("192.0.2.0/33"), "CIDR"},
		"short-address": {allow("127.1"), "number"},
		"hex-address":   {allow("0x7f000001"), "number"},
		"bare-star":     {allow("*"), "host name"},
		"inner-star":    {allow("a.*.example.org"), "host name"},
		"double-star":   {allow("*.*.example.org"), "host name"},
		"empty":         {allow(""), "host name"},
		"trailing-dot":  {allow("example.org."), "host name"},
		"hyphen":        {allow("-a.example"), "host name"},
		"underscore":    {allow("a_b.example"), "host name"},
		"unicode":       {allow("bücher.example"), "host name"},
		"nul":           {allow("example.org\x00"), "host name"},
		"long-label":    {allow(strings.Repeat("a", 64) + ".de"), "host name"},
		"long":          {allow(strings.Repeat("a.", 130) + "de"), "253"},
	} {
		t.Run(name, func(t *testing.T) { checkInvalid(t, executor.Spec{Network: c.policy}.Validate(), c.want) })
	}
}

// FuzzHosts tests that every accepted host means the same to everybody: an address, a block, or a
// name that no resolver takes for an address, in characters that need no quoting anywhere.
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"example.org", "*.example.org", "10.0.0.0/8", "::1", "127.1", "0x7f.1", "a:1", "[::1]", "a..b", "1.2.3.4.", "١.example", "fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		p := executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{host}}
		if (executor.Spec{Network: p}).Validate() != nil {
			return
		}
		if _, err := netip.ParseAddr(host); err == nil {
			return
		}
		if block, err := netip.ParsePrefix(host); err == nil {
			if block.Masked() != block {
				t.Errorf("%q has bits behind its mask", host)
			}
			return
		}
		name := strings.TrimPrefix(host, "*.")
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != "" || len(name) > 253 || name == "" {
			t.Errorf("%q passes for a name", host)
		}
		if last := name[strings.LastIndex(name, ".")+1:]; last == "" || last[0] >= '0' && last[0] <= '9' {
			t.Errorf("%q passes for a name, but may be an address", host)
		}
	})
}

func TestRequestValidate(t *testing.T) {
	artifacts := func(a executor.ArtifactRequest) executor.Request {
		return executor.Request{Code: "x", Artifacts: &a}
	}
	globs := func(g ...string) executor.Request { return artifacts(executor.ArtifactRequest{Globs: g}) }
	for name, c := range map[string]struct {
		req  executor.Request
		want string
	}{
		"code":             {req: executor.Request{Code: "x"}},
		"code-with-nul":    {req: executor.Request{Code: "x\x00"}}, // the interpreter judges it
		"empty-code":       {req: executor.Request{Language: executor.Python}},
		"nothing":          {executor.Request{}, "neither code nor command"},
		"code-bytes":       {executor.Request{Code: "\xff"}, "code: not UTF-8"},
		"command":          {req: executor.Request{Command: []string{"ls", ""}}},
		"command-empty":    {executor.Request{Command: []string{}}, "command: no program"},
		"command-nameless": {executor.Request{Command: []string{"", "x"}}, "command: no program"},
		"command-nul":      {executor.Request{Command: []string{"ls", "a\x00b"}}, "command: contains NUL"},
		"terminal":         {req: executor.Request{Command: []string{"sh"}, Terminal: new(executor.Terminal)}},
		"terminal-of-code": {executor.Request{Code: "x", Terminal: new(executor.Terminal)}, "requires a command"},
		"both":             {executor.Request{Command: []string{"ls"}, Code: "x"}, "excludes"},
		"command-language": {executor.Request{Command: []string{"ls"}, Language: "python"}, "excludes"},
		"command-context":  {executor.Request{Command: []string{"ls"}, Context: "c"}, "excludes"},
		"id":               {req: executor.Request{Code: "x", ID: "Run-1.a_b"}},
		"id-slash":         {executor.Request{Code: "x", ID: "a/b"}, "id"},
		"id-dot":           {executor.Request{Code: "x", ID: ".."}, "id"},
		"id-newline":       {executor.Request{Code: "x", ID: "a\n"}, "id"},
		"id-long":          {executor.Request{Code: "x", ID: strings.Repeat("a", 65)}, "id"},
		"context":          {req: executor.Request{Code: "x", Context: "plots"}},
		"context-space":    {executor.Request{Code: "x", Context: "a b"}, "context"},
		"env-nul":          {executor.Request{Code: "x", Env: map[string]string{"A": "secret\x00"}}, "env"},
		"dir":              {req: executor.Request{Code: "x", Dir: "a/../b"}},
		"dir-absolute":     {req: executor.Request{Code: "x", Dir: "/tmp/.."}},
		"dir-climbs":       {executor.Request{Code: "x", Dir: "a/../../b"}, "dir"},
		"dir-parent":       {executor.Request{Code: "x", Dir: ".."}, "dir"},
		"dir-nul":          {executor.Request{Code: "x", Dir: "a\x00"}, "dir"},
		"dir-long":         {executor.Request{Code: "x", Dir: strings.Repeat("a/", 3000)}, "dir"},
		"limits":           {req: executor.Request{Code: "x", Limits: executor.RunLimits{WallTime: executor.NoLimit}}},
		"limits-negative":  {executor.Request{Code: "x", Limits: executor.RunLimits{OutputBytes: -1}}, "limits: output"},
		"globs":            {req: globs("*.csv", "**/a[0-9].png", "out/**")},
		"glob-syntax":      {globs("["), "not a pattern"},
		"glob-late-syntax": {globs("a/["), "not a pattern"},
		"glob-empty":       {globs(""), "not a pattern"},
		"glob-long":        {globs(strings.Repeat("a", 1025)), "not a pattern"},
		"glob-absolute":    {globs("/etc/*"), "relative"},
		"glob-of-workdir":  {req: globs("/workspace/*.csv", "/mnt/data/*")}, // only the session knows whether that is an alias
		"glob-beside":      {globs("/workspaces/*"), "relative"},
		"glob-climbs":      {globs("a/../../*"), "relative"},
		"globs-many":       {globs(make([]string, 101)...), "more than 100"},
		"max-files":        {artifacts(executor.ArtifactRequest{MaxFiles: -1}), "negative"},
		"max-bytes":        {artifacts(executor.ArtifactRequest{MaxBytes: -1}), "negative"},
		"keep-nothing":     {req: executor.Request{Code: "x", Keep: -1}},
	} {
		t.Run(name, func(t *testing.T) { checkInvalid(t, c.req.Validate(), c.want) })
	}
}

func TestValidateReportsAll(t *testing.T) {
	err := executor.Spec{IdleTTL: -1, MaxLife: -1, Limits: executor.Limits{CPUs: -1}, Env: map[string]string{"": "", "=": ""}}.Validate()
	for _, want := range []string{"idle ttl", "max life", "limits", `name ""`, `name "="`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestBounds(t *testing.T) {
	rl := func(wall time.Duration, out int64) executor.RunLimits {
		return executor.RunLimits{WallTime: wall, OutputBytes: out}
	}
	def := rl(executor.DefaultWallTime, executor.DefaultOutputBytes)
	for name, c := range map[string]struct{ run, maxRun, wantRun, wantMax executor.RunLimits }{
		"zero":             {wantRun: def, wantMax: def},
		"run-only":         {run: rl(time.Minute, 5), wantRun: rl(time.Minute, 5), wantMax: rl(time.Minute, 5)},
		"higher-ceiling":   {maxRun: rl(time.Hour, 0), wantRun: def, wantMax: rl(time.Hour, executor.DefaultOutputBytes)},
		"lower-ceiling":    {maxRun: rl(time.Second, 10), wantRun: rl(time.Second, 10), wantMax: rl(time.Second, 10)},
		"no-ceiling":       {maxRun: rl(executor.NoLimit, 0), wantRun: def, wantMax: rl(executor.NoLimit, executor.DefaultOutputBytes)},
		"both":             {run: rl(time.Second, 1), maxRun: rl(time.Minute, 2), wantRun: rl(time.Second, 1), wantMax: rl(time.Minute, 2)},
		"unlimited-by-run": {run: rl(executor.NoLimit, 0), wantRun: rl(executor.NoLimit, executor.DefaultOutputBytes), wantMax: rl(executor.NoLimit, executor.DefaultOutputBytes)},
	} {
		run, maxRun := executor.Spec{Run: c.run, MaxRun: c.maxRun}.Bounds()
		if run != c.wantRun || maxRun != c.wantMax {
			t.Errorf("%s: got %v and %v, want %v and %v", name, run, maxRun, c.wantRun, c.wantMax)
		}
	}
}
