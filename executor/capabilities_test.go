package executor_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// bare has one language and nothing else. It cannot even block the network.
var bare = executor.Capabilities{
	Features:  []executor.Feature{executor.FeatureCode},
	Languages: []executor.Runtime{{Language: executor.Python}},
	Isolation: executor.IsolationProcess,
	MaxRun:    executor.RunLimits{WallTime: time.Minute, OutputBytes: executor.DefaultOutputBytes},
	MaxLife:   2 * time.Hour,
}

// TestEveryFieldIsMappedOrExempt keeps the mapping complete. For each field of Spec and Request
// that asks for more than bare has, either MissingFor must report it, or the list below must say
// why it need not.
func TestEveryFieldIsMappedOrExempt(t *testing.T) {
	asks := map[string]executor.Spec{
		"Template":     {Template: "x"},
		"Languages":    {Languages: []executor.Language{"r"}},
		"Packages":     {Packages: []executor.Packages{{Names: []string{"numpy"}}}},
		"Env":          {Env: map[string]string{"A": "b"}},
		"Ports":        {Ports: true},
		"Aliases":      {Aliases: []string{"/mnt/data"}},
		"Limits":       {Limits: executor.Limits{MemoryBytes: 1}},
		"Run":          {Run: executor.RunLimits{WallTime: time.Hour}},
		"MaxRun":       {MaxRun: executor.RunLimits{WallTime: time.Hour}},
		"Network":      {Network: executor.NetworkPolicy{Mode: executor.NetworkFull}},
		"IdleTTL":      {IdleTTL: 3 * time.Hour},
		"MaxLife":      {MaxLife: 3 * time.Hour},
		"MinIsolation": {MinIsolation: executor.IsolationMicroVM},
		"Require":      {Require: []executor.Feature{"x-own"}},
	}
	asksRequest := map[string]executor.Request{
		"Language":  {Language: "r"},
		"Context":   {Code: "x", Context: "c"},
		"Command":   {Command: []string{"ls"}},
		"Stdin":     {Code: "x", Stdin: strings.NewReader("")},
		"Env":       {Code: "x", Env: map[string]string{"A": "b"}},
		"Dir":       {Code: "x", Dir: "d"},
		"Artifacts": {Code: "x", Artifacts: &executor.ArtifactRequest{}},
		"Linger":    {Code: "x", Linger: new(time.Second)},
		"Terminal":  {Command: []string{"ls"}, Terminal: new(executor.Terminal)},
	}
	exempt := map[string]string{
		"Spec.Labels":        "every backend stores them",
		"Spec.Attributes":    "never sent to a backend",
		"Spec.Subject":       "never sent to a backend",
		"Request.Code":       "core",
		"Request.ID":         "every backend names runs",
		"Request.Keep":       "the driver package does it",
		"Request.Repeatable": "backends ignore it: it is for package sessions",
		"Request.Limits":     "the bounds are the session's, not the backend's: SessionInfo.MaxRun",
	}
	quiet := bare.MissingFor(executor.Spec{})
	if want := []string{"network-none"}; !slices.Equal(quiet, want) {
		t.Fatalf("got %q for the zero Spec, want %q", quiet, want)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[executor.Spec]()) {
		spec, ok := asks[f.Name]
		switch {
		case exempt["Spec."+f.Name] != "":
		case !ok:
			t.Errorf("Spec.%s is neither in MissingFor nor exempt", f.Name)
		case slices.Equal(bare.MissingFor(spec), quiet):
			t.Errorf("Spec.%s: nothing is missing for %+v", f.Name, spec)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[executor.Request]()) {
		req, ok := asksRequest[f.Name]
		switch {
		case exempt["Request."+f.Name] != "":
		case !ok:
			t.Errorf("Request.%s is neither in MissingForRequest nor exempt", f.Name)
		case len(bare.MissingForRequest(req)) == 0:
			t.Errorf("Request.%s: nothing is missing for %+v", f.Name, req)
		}
	}
}

func TestMissingFor(t *testing.T) {
	caps := executor.Capabilities{
		Features: []executor.Feature{
			executor.FeatureCode, executor.FeatureNetworkNone, executor.FeatureLimitMemory, executor.FeatureMixedLanguages, executor.FeatureLimitCPU,
			executor.FeatureNetworkAllowlist,
		},
		Languages: []executor.Runtime{
			{Language: executor.Python, Features: []executor.Feature{executor.FeatureEnv, executor.FeaturePackages, executor.FeatureStdin}},
			{Language: executor.JavaScript},
		},
		Templates: []string{"data"},
		Isolation: executor.IsolationContainer,
		MaxLimits: executor.Limits{MemoryBytes: 1 << 30, CPUs: 1.5},
		MaxRun:    executor.RunLimits{WallTime: time.Minute},
		MaxLife:   time.Hour,
	}
	both := []executor.Language{executor.Python, executor.JavaScript}
	for name, c := range map[string]struct {
		spec executor.Spec
		want []string
	}{
		"zero":      {},
		"fits":      {spec: executor.Spec{Template: "data", Languages: both, Limits: executor.Limits{MemoryBytes: 1 << 30}}},
		"language":  {executor.Spec{Languages: []executor.Language{"r"}, Env: map[string]string{"A": ""}}, []string{"language:r"}},
		"one-lacks": {executor.Spec{Languages: both, Env: map[string]string{"A": ""}}, []string{"env:javascript"}},
		"first-language-has": {
			spec: executor.Spec{Env: map[string]string{"A": ""}, Packages: []executor.Packages{{Names: []string{"x"}}}},
		},
		"packages-by-default-language": {
			executor.Spec{Languages: []executor.Language{executor.JavaScript}, Packages: []executor.Packages{{Names: []string{"x"}}}},
			[]string{"packages:javascript"},
		},
		"require":           {executor.Spec{Require: []executor.Feature{executor.FeatureState, executor.FeatureCommand}}, []string{"state:python", "command"}},
		"once":              {executor.Spec{Require: []executor.Feature{executor.FeatureCommand, executor.FeatureCommand}}, []string{"command"}},
		"template":          {executor.Spec{Template: "x"}, []string{"template:x"}},
		"memory":            {executor.Spec{Limits: executor.Limits{MemoryBytes: 1<<30 + 1}}, []string{"memory<=1073741824"}},
		"cpus":              {executor.Spec{Limits: executor.Limits{CPUs: 2}}, []string{"cpus<=1.5"}},
		"disk":              {executor.Spec{Limits: executor.Limits{DiskBytes: 1}}, []string{"limit-disk"}},
		"processes":         {executor.Spec{Limits: executor.Limits{Processes: 1}}, []string{"limit-processes"}},
		"wall-time":         {executor.Spec{Run: executor.RunLimits{WallTime: time.Hour}}, []string{"wall-time<=1m0s"}},
		"no-limit":          {executor.Spec{Run: executor.RunLimits{WallTime: executor.NoLimit}}, []string{"wall-time<=1m0s"}},
		"ceiling":           {executor.Spec{MaxRun: executor.RunLimits{WallTime: time.Hour}}, []string{"wall-time<=1m0s"}},
		"no-limit-ceiling":  {executor.Spec{MaxRun: executor.RunLimits{WallTime: executor.NoLimit}}, []string{"wall-time<=1m0s"}},
		"full":              {executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}}, []string{"network-full"}},
		"allow-list":        {spec: executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkAllowlist, Hosts: []string{"example.org"}}}},
		"isolation":         {executor.Spec{MinIsolation: executor.IsolationGVisor}, []string{"isolation>=gvisor"}},
		"max-life":          {executor.Spec{MaxLife: 2 * time.Hour}, []string{"max-life<=1h0m0s"}},
		"idle-ttl":          {executor.Spec{IdleTTL: 2 * time.Hour}, []string{"idle-ttl<=1h0m0s"}},
		"several-languages": {spec: executor.Spec{Languages: both}},
	} {
		if got := caps.MissingFor(c.spec); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	one := caps
	one.Features = []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone}
	if got, want := one.MissingFor(executor.Spec{Languages: both}), []string{"mixed-languages"}; !slices.Equal(got, want) {
		t.Errorf("mixed: got %q, want %q", got, want)
	}
}

// TestIsolationOfALanguage: a session is no safer than the weakest of its languages.
func TestIsolationOfALanguage(t *testing.T) {
	caps := executor.Capabilities{
		Isolation: executor.IsolationWasm,
		Languages: []executor.Runtime{
			{Language: executor.Python},
			{Language: executor.JavaScript, Isolation: executor.IsolationProcess},
			{Language: "r", Isolation: executor.IsolationMicroVM}, // not weaker
		},
	}
	for _, c := range []struct {
		languages []executor.Language
		want      executor.Isolation
	}{
		{nil, executor.IsolationWasm},
		{[]executor.Language{executor.JavaScript}, executor.IsolationProcess},
		{[]executor.Language{executor.Python, executor.JavaScript}, executor.IsolationProcess},
		{[]executor.Language{"r"}, executor.IsolationWasm},
	} {
		if got := caps.For(c.languages...).Isolation; got != c.want {
			t.Errorf("%v: got %s, want %s", c.languages, got, c.want)
		}
		missing := slices.Contains(caps.MissingFor(executor.Spec{Languages: c.languages, MinIsolation: executor.IsolationWasm}), "isolation>=wasm")
		if want := c.want != executor.IsolationWasm; missing != want {
			t.Errorf("%v: refused: got %v, want %v", c.languages, missing, want)
		}
	}
}

func TestMissingForRequest(t *testing.T) {
	caps := executor.Capabilities{
		Features: []executor.Feature{executor.FeatureCode},
		Languages: []executor.Runtime{
			{Language: executor.Python, Features: []executor.Feature{executor.FeatureStdin, executor.FeatureEnv}},
			{Language: executor.JavaScript, Features: []executor.Feature{executor.FeatureEnv}},
		},
	}
	stdin := strings.NewReader("")
	for name, c := range map[string]struct {
		req  executor.Request
		want []string
	}{
		"code":             {req: executor.Request{Code: "x"}},
		"default-language": {req: executor.Request{Code: "x", Stdin: stdin}},
		"language-lacks":   {executor.Request{Code: "x", Language: executor.JavaScript, Stdin: stdin, Dir: "d"}, []string{"stdin:javascript", "dir:javascript"}},
		"no-language":      {executor.Request{Code: "x", Language: "r", Stdin: stdin}, []string{"language:r"}},
		"command":          {executor.Request{Command: []string{"ls"}, Stdin: stdin, Dir: "d"}, []string{"command"}},
	} {
		if got := caps.MissingForRequest(c.req); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	caps.Features = append(caps.Features, executor.FeatureCommand)
	if got := caps.MissingForRequest(executor.Request{Command: []string{"ls"}, Stdin: stdin, Dir: "d"}); got != nil {
		t.Errorf("command includes stdin and dir: got %q", got)
	}
	if got := caps.MissingForRequest(executor.Request{Command: []string{"ls"}, Terminal: new(executor.Terminal)}); !slices.Equal(got, []string{"pty"}) {
		t.Errorf("command does not include terminals: got %q", got)
	}
}

func TestCapabilitiesOfSession(t *testing.T) {
	caps := executor.Capabilities{
		Features: []executor.Feature{executor.FeatureCode},
		Languages: []executor.Runtime{
			{Language: executor.Python, Features: []executor.Feature{executor.FeatureState, executor.FeatureFiles}},
			{Language: executor.JavaScript, Features: []executor.Feature{executor.FeatureState}},
		},
	}
	if caps.Has(executor.FeatureFiles) || !caps.Has(executor.FeatureState) {
		t.Error("Has wants a feature in every language")
	}
	if !caps.HasFor(executor.Python, executor.FeatureFiles) || !caps.HasFor("", executor.FeatureFiles) || caps.HasFor("r", executor.FeatureState) {
		t.Error("HasFor wants it in one")
	}
	if !caps.HasFor("r", executor.FeatureCode) || (executor.Capabilities{}).Has(executor.FeatureState) {
		t.Error("only features of languages depend on the language")
	}
	if got := caps.For(executor.JavaScript, executor.Python, "r"); len(got.Languages) != 2 || got.Languages[0].Language != executor.JavaScript {
		t.Errorf("got %+v, want the two languages as ordered", got.Languages)
	}
	if got := caps.For(); len(got.Languages) != 1 || !got.Has(executor.FeatureFiles) {
		t.Errorf("got %+v, want the first language", got.Languages)
	}
	if len(caps.Languages) != 2 {
		t.Error("For changed its receiver")
	}
	if r, ok := (executor.Capabilities{}).Runtime(""); ok || r.Language != "" {
		t.Errorf("got %+v of no language", r)
	}
}

// With FeatureTypeScript there is one interpreter for two languages, whichever of them the session
// was made for.
func TestTypeScript(t *testing.T) {
	caps := executor.Capabilities{
		Features: []executor.Feature{executor.FeatureCode, executor.FeatureNetworkNone, executor.FeatureTypeScript},
		Languages: []executor.Runtime{
			{Language: executor.Python, Features: []executor.Feature{executor.FeatureStdin}},
			{Language: executor.JavaScript, Version: "20", Features: []executor.Feature{executor.FeatureEnv}},
		},
	}
	without := caps
	without.Features = caps.Features[:2]
	own := without
	own.Languages = append([]executor.Runtime{{Language: executor.TypeScript}}, caps.Languages...)
	for _, l := range []executor.Language{executor.JavaScript, executor.TypeScript} {
		session := caps.For(l)
		if r, ok := session.Runtime(""); !ok || r.Language != l || r.Version != "20" || len(session.Languages) != 1 {
			t.Errorf("a session with %s: got %+v", l, session.Languages)
		}
		for _, in := range []executor.Language{executor.JavaScript, executor.TypeScript} {
			if got := session.MissingForRequest(executor.Request{Language: in, Code: "x", Env: map[string]string{"A": ""}}); got != nil {
				t.Errorf("%s in a session with %s: got %q missing", in, l, got)
			}
			if got := session.Interpreter(in); got != executor.JavaScript {
				t.Errorf("%s in a session with %s: got the interpreter of %q", in, l, got)
			}
		}
	}
	both := executor.Spec{Languages: []executor.Language{executor.TypeScript, executor.JavaScript}}
	for name, c := range map[string]struct {
		got, want any
	}{
		"both-are-one":     {caps.MissingFor(both), []string(nil)},
		"three-are-two":    {caps.MissingFor(executor.Spec{Languages: append(both.Languages, executor.Python)}), []string{"mixed-languages"}},
		"feature-by-name":  {caps.MissingForRequest(executor.Request{Language: executor.TypeScript, Stdin: strings.NewReader("")}), []string{"stdin:typescript"}},
		"without":          {without.MissingFor(both), []string{"language:typescript", "mixed-languages"}},
		"request-without":  {without.MissingForRequest(executor.Request{Language: executor.TypeScript}), []string{"language:typescript"}},
		"python-only":      {caps.For(executor.Python).MissingForRequest(executor.Request{Language: executor.TypeScript}), []string{"language:typescript"}},
		"language-of-its":  {own.Interpreter(executor.TypeScript), executor.TypeScript},
		"all-interpreters": {caps.Interpreter(""), executor.Language("")},
		"interpreters":     {caps.Interpreters([]executor.Language{executor.Python, executor.TypeScript, executor.JavaScript}), []executor.Language{executor.Python, executor.JavaScript}},
		"interpreters-own": {own.Interpreters(both.Languages), both.Languages},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %q, want %q", name, c.got, c.want)
		}
	}
}

func TestIsolationAtLeast(t *testing.T) {
	levels := []executor.Isolation{
		executor.IsolationProcess, executor.IsolationWasm, executor.IsolationWasmOS, executor.IsolationContainer, executor.IsolationGVisor,
		executor.IsolationMicroVM,
	}
	for _, i := range levels {
		if !i.AtLeast(i) || !i.AtLeast("") || !i.AtLeast(executor.IsolationProcess) || !executor.IsolationMicroVM.AtLeast(i) {
			t.Errorf("%s: not at least itself, nothing and process, or stronger than microvm", i)
		}
		if executor.Isolation("steel").AtLeast(i) || executor.Isolation("").AtLeast(i) {
			t.Errorf("an unknown level is at least %s", i)
		}
		for _, j := range levels {
			for _, k := range levels {
				if i.AtLeast(j) && j.AtLeast(k) && !i.AtLeast(k) {
					t.Errorf("%s >= %s >= %s, but not %s >= %s", i, j, k, i, k)
				}
			}
			if i != j && i.AtLeast(j) && j.AtLeast(i) {
				t.Errorf("%s and %s are stronger than each other", i, j)
			}
		}
	}
	if executor.IsolationWasm.AtLeast(executor.IsolationContainer) || executor.IsolationContainer.AtLeast(executor.IsolationWasm) {
		t.Error("WebAssembly and containers cannot be compared")
	}
}

func TestCapabilitiesJSON(t *testing.T) {
	var back executor.Capabilities
	text, err := json.Marshal(bare)
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || !reflect.DeepEqual(back, bare) {
		t.Errorf("%s: got %+v %v, want %+v", text, back, err, bare)
	}
}
