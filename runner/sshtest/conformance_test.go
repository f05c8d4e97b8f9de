package sshtest

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/conformance/conformancetest"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

func target() conformance.Target {
	return conformance.Target{
		Implementation: conformance.Implementation{Name: "sshtest", Version: "1"},
		Mode:           conformance.Live,
		Setup: func(context.Context) (map[string]string, func() error, error) {
			s, err := listen()
			if err != nil {
				return nil, nil, err
			}
			return map[string]string{"address": s.at.Addr().String(), "key": s.key}, s.Close, nil
		},
		Open: func(_ context.Context, params map[string]string) (executor.Executor, error) {
			key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(params["key"]))
			if err != nil {
				return nil, err
			}
			env := driver.Env{Owner: cmp.Or(params[conformance.ParamOwner], "conformance-ssh")}
			return Open(env, params["address"], &ssh.ClientConfig{User: "root", HostKeyCallback: ssh.FixedHostKey(key), Timeout: time.Minute})
		},
		Spec:     executor.Spec{Network: executor.NetworkPolicy{Mode: executor.NetworkFull}},
		Programs: []conformance.Programs{conformance.Python, conformance.JavaScript},
		Must: conformance.Must{
			Features: []executor.Feature{
				executor.FeatureCode, executor.FeatureCommand, executor.FeaturePTY, executor.FeatureMixedLanguages, executor.FeatureTypeScript,
				executor.FeatureAttach, executor.FeatureFencing, executor.FeatureKeepAlive,
			},
			EachLanguage: []executor.Feature{executor.FeatureState, executor.FeatureInterrupt, executor.FeatureFiles, executor.FeatureArtifacts},
		},
		Parallel: 4,
	}
}

func TestMain(m *testing.M) { os.Exit(conformancetest.Main(m, target)) }

// TestConformance runs the suite.
func TestConformance(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: the sandboxes are namespaces of this machine")
	}
	conformancetest.Test(t, target())
}

// TestLength holds the adapter to what documentation says of it.
func TestLength(t *testing.T) {
	text, err := os.ReadFile("adapter_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 150 {
		t.Errorf("the adapter has %d lines, more than 150", n)
	}
}
