package bubblewrap

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		errors   []string // parts of what is said; none: it is taken
	}{
		"nothing": {settings: `{}`},
		"all": {settings: `{"root": "/srv/sandbox", "templates": {"data": "/srv/data", "small": {"limits": {"memory": "64MiB"}}},
			"languages": ["python", "javascript"], "ports": true, "limits": {"cpus": 2, "disk": "1GiB"}, "max_limits": {"memory": "4GiB"},
			"cgroup": "/sys/fs/cgroup/sandboxes", "allow_weak": true, "allow_code_filters": true, "max_life": "1h"}`},
		"no-limits":      {settings: `{"cgroup": "none", "limits": {"disk": "1GiB"}}`},
		"unknown":        {settings: `{"rot": "/x"}`, errors: []string{`rot`, `"root"`}},
		"relative":       {settings: `{"root": "sandbox"}`, errors: []string{"root: want an absolute path"}},
		"dots":           {settings: `{"templates": {"a": "/srv/../etc"}}`, errors: []string{"templates.a.root: want an absolute path"}},
		"host":           {settings: `{"root": "/"}`, errors: []string{"root: / has the files and sockets of everybody"}},
		"empty-name":     {settings: `{"templates": {"": "/srv/x"}}`, errors: []string{"templates: empty name"}},
		"language":       {settings: `{"languages": ["cobol"]}`, errors: []string{"languages", "cobol"}},
		"negative":       {settings: `{"limits": {"memory": -1}, "max_limits": {"cpus": -1}}`, errors: []string{"limits", "max_limits: negative"}},
		"not-enforced":   {settings: `{"cgroup": "none", "limits": {"memory": "1GiB"}}`, errors: []string{"limits: cpus, memory and processes need a control group"}},
		"of-a-template":  {settings: `{"cgroup": "none", "templates": {"a": {"limits": {"cpus": 1}}}}`, errors: []string{"templates.a.limits: cpus"}},
		"cgroup":         {settings: `{"cgroup": "sandboxes"}`, errors: []string{"cgroup: want an absolute path"}},
		"of-the-machine": {settings: `{"cgroup": "/"}`, errors: []string{"cgroup"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Factory().Check([]byte(c.settings))
			if err == nil != (c.errors == nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.errors {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestDeclarations(t *testing.T) {
	c := Config{Languages: []executor.Language{executor.Python, executor.JavaScript}}
	for _, limited := range []bool{true, false} {
		caps := c.capabilities(limited)
		for _, f := range counted {
			if caps.Has(f) != limited {
				t.Errorf("with a control group %v: %s is declared %v", limited, f, !limited)
			}
		}
		if !caps.Has(executor.FeatureLimitDisk) || caps.Has(executor.FeatureNetworkFull) || caps.Has(executor.FeaturePorts) {
			t.Errorf("got %v", caps.Features)
		}
		if caps.Isolation != executor.IsolationContainer {
			t.Errorf("got isolation %s", caps.Isolation)
		}
	}
}
