package docker

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor/driver"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	host := testEngine(t).at.host
	for name, c := range map[string]struct {
		cfg  Config
		want map[string]string // findings that are not OK, and what their detail says; "" as a fix is a mistake
	}{
		"healthy":     {Config{Image: dockertest.Trixie, Pull: PullNever, Templates: map[string]Template{"old": {Image: dockertest.Bullseye}}}, nil},
		"to-pull":     {Config{Image: "registry.invalid/no-such:1"}, nil},
		"no-image":    {Config{Image: "no-such", Pull: PullNever}, map[string]string{"image": "no-such is not there, and pull is never"}},
		"no-template": {Config{Image: dockertest.Trixie, Pull: PullNever, Templates: map[string]Template{"a": {Image: "no-such"}}}, map[string]string{"image of template a": "no-such is not there"}},
		"no-runtime":  {Config{Image: dockertest.Trixie, Pull: PullNever, Runtime: "runsc-of-nobody"}, map[string]string{"limits and system calls": "unknown runtime"}},
		"no-wheels":   {Config{Image: dockertest.Trixie, Pull: PullNever, Packages: Packages{Packages: driver.Packages{Wheels: "/no/such"}}}, map[string]string{"packages": "/no/such"}},
		"mistake":     {Config{Pull: "sometimes"}, map[string]string{"engine": "unknown policy"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Host = host
			got := map[string]string{}
			for _, check := range Doctor(t.Context(), driver.Env{Owner: "test"}, c.cfg) {
				if check.OK {
					if check.Detail == "" || check.Fix != "" {
						t.Errorf("%s: says nothing, or has a fix: %+v", check.Name, check)
					}
					continue
				}
				got[check.Name] = check.Detail
				if check.Fix == "" {
					t.Errorf("%s: no fix", check.Name)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for name, detail := range c.want {
				if !strings.Contains(got[name], detail) {
					t.Errorf("%s: got %q, want %q in it", name, got[name], detail)
				}
			}
		})
	}
}
